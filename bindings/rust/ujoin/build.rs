// SPDX-License-Identifier: Apache-2.0
//! This crate's own tests find the library where ujoin-sys found it. Programs of users need the loader's path instead:
//! cargo does not pass linker arguments on to dependents.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_UJOIN_LIBDIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
