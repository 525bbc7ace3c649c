// SPDX-License-Identifier: Apache-2.0
//! What a call costs through this crate: `name<TAB>nanoseconds` for each, the median of batches. tests/bench/bindings_rust
//! compares it with the same calls from C.
use std::hint::black_box;
use std::time::Instant;
use ujoin::{Ddp, Group, Params, Reduce, Result, Sgd, Zero};

const BATCHES: usize = 1001;

fn time(name: &str, calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    let mut batch = || {
        let begin = Instant::now();
        (0..calls).try_for_each(|_| call())?;
        Ok(begin.elapsed().as_nanos() as f64 / calls as f64)
    };
    let mut times = (0..BATCHES).map(|_| batch()).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    println!("{name}\t{:.1}", times[BATCHES / 2]);
    Ok(())
}

fn main() -> Result<()> {
    let group = Group::alone()?;
    time("no-op", 1_000, || {
        black_box(group.rank());
        Ok(())
    })?;
    let mut tensors = [[1f32; 16]; 3];
    time("reduce 3 tensors", 200, || tensors.iter_mut().try_for_each(|t| group.all_reduce(t, Reduce::Sum)))?;
    let builder = (0..3).fold(Params::builder(), |b, i| b.tensor(format!("t{i}"), &[16], vec![1f32; 16]));
    let params = builder.build()?;
    let ddp = Ddp::builder(&group).params(&params).build()?;
    time("ddp iteration", 200, || ddp.iteration(1, |ready| (0..3).try_for_each(ready)))?;
    let opt = Zero::builder(&group, Sgd::default()).params(&params).build()?;
    time("step", 200, || opt.step())?;
    let mut count = 0u64;
    time("step with callback", 200, || {
        opt.step_with(|| {
            count += 1;
            Ok(())
        })
    })
}
