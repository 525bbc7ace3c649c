// SPDX-License-Identifier: Apache-2.0
//! Finds libujoin: in `UJOIN_LIB_DIR`, else by pkg-config; the feature `vendored` builds it from the checkout's sources.
//! Dependents see the library's folder as `DEP_UJOIN_LIBDIR`.
use std::env;

const OLDEST: &str = "0.1.0";

fn main() {
    println!("cargo::rerun-if-env-changed=UJOIN_LIB_DIR");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation needs no library
    }
    if cfg!(feature = "vendored") {
        build_vendored();
    } else if let Some(folder) = env::var_os("UJOIN_LIB_DIR") {
        link_from(&folder.to_string_lossy());
        println!("cargo::rustc-link-lib=ujoin");
    } else {
        find_by_pkg_config();
    }
}

fn link_from(folder: &str) {
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::metadata=libdir={folder}");
}

fn find_by_pkg_config() {
    match pkg_config::Config::new().atleast_version(OLDEST).probe("ujoin") {
        Ok(found) => {
            if let Some(folder) = found.link_paths.first() {
                println!("cargo::metadata=libdir={}", folder.display());
            }
        }
        Err(problem) => {
            eprintln!(
                "libujoin {OLDEST} or later was not found. Install it and let PKG_CONFIG_PATH name the folder of \
                 ujoin.pc, or set UJOIN_LIB_DIR to that of libujoin.so, or use the feature `vendored` in a checkout.\n\
                 {problem}"
            );
            std::process::exit(1);
        }
    }
}

#[cfg(feature = "vendored")]
fn build_vendored() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    assert!(
        root.join("include/ujoin.h").exists(),
        "the feature `vendored` builds libujoin from the sources around this crate, but {} is no checkout of them",
        root.display()
    );
    for part in ["CMakeLists.txt", "src", "include"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    let installed = cmake::Config::new(&root)
        .profile("Release")
        .define("UJOIN_TESTS", "OFF")
        .define("UJOIN_EXAMPLES", "OFF")
        .define("CMAKE_INSTALL_LIBDIR", "lib")
        .build();
    link_from(&installed.join("lib").to_string_lossy());
    println!("cargo::rustc-link-lib=static=ujoin");
    for library in ["uv", "stdc++", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
}

#[cfg(not(feature = "vendored"))]
fn build_vendored() {}
