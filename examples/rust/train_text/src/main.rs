// SPDX-License-Identifier: Apache-2.0
//! The trainer of examples/train_text.md: `ujoin-run --standalone --nproc-per-node 2 train_text --text FILE --out DIR`
use sha2::{Digest, Sha256};
use std::{env, error::Error, fs, path::PathBuf};
use ujoin::{AdamW, Ddp, Division, Group, Join, Params, Ready, Reduce, SaveOptions, Zero};

const CONTEXT: usize = 16;
const EMBED: usize = 32;
const INPUTS: usize = CONTEXT * EMBED;
const HIDDEN: usize = 400;
const OPTIONS: [&str; 6] = ["--text", "--out", "--epochs", "--seed", "--batch", "--rounds"];
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn option(name: &str, default: &str) -> String {
    env::args().skip(1).skip_while(|arg| arg != name).nth(1).unwrap_or_else(|| default.to_owned())
}

/// Character numbers of the training text and of the held-out one; how many characters there are.
fn load(path: &str) -> Result<(Vec<u8>, Vec<u8>, usize)> {
    let mut files: Vec<PathBuf> = vec![path.into()];
    if let Ok(entries) = fs::read_dir(path) {
        files =
            entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_file())).map(|e| e.path()).collect();
    }
    files.sort();
    let texts = files.iter().map(|f| fs::read(f).map_err(|e| format!("cannot read the text {}: {e}", f.display())));
    let bytes = texts.collect::<std::result::Result<Vec<_>, _>>()?.concat();
    if bytes.len() < 20_000 {
        return Err(format!("the text {path} has {} characters, at least 20000 are needed", bytes.len()).into());
    }
    let table: Vec<u8> = (0..=255).filter(|byte| bytes.contains(byte)).collect();
    let number = |byte: &u8| table.partition_point(|known| known < byte) as u8;
    let blocks = |held_out| bytes.chunks(2000).enumerate().filter(move |(i, _)| (i % 10 == 9) == held_out);
    let part = |held_out| blocks(held_out).flat_map(|(_, block)| block.iter().map(number)).collect();
    Ok((part(false), part(true), table.len()))
}

/// splitmix64
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The positions that a rank predicts in an epoch, in a new order each time.
fn shuffled(length: usize, (rank, size): (usize, usize), mut seed: u64, epoch: usize) -> Vec<usize> {
    let begin = |r: usize| length * (2 * size * r + r * r.saturating_sub(1) / 2) / (size * (5 * size - 1) / 2);
    let mut positions: Vec<usize> = (begin(rank) + CONTEXT..begin(rank + 1)).collect();
    let mut random = next(&mut seed) ^ (1 + 65_536 * epoch as u64 + rank as u64);
    (2..=positions.len()).rev().for_each(|i| positions.swap(i - 1, (next(&mut random) % i as u64) as usize));
    positions
}

/// Weights are uniform in [-bound, bound), biases 0.
fn initial(characters: usize, mut seed: u64) -> ujoin::Result<Params> {
    let mut random = next(&mut seed);
    let mut unit = || (next(&mut random) >> 40) as f32 / 16_777_216.0;
    let mut uniform = |count, bound| (0..count).map(|_| (2.0 * unit() - 1.0) * bound).collect();
    Params::builder()
        .tensor("embedding", &[characters, EMBED], uniform(characters * EMBED, 0.5))
        .tensor("weight1", &[INPUTS, HIDDEN], uniform(INPUTS * HIDDEN, 0.125))
        .tensor("bias1", &[HIDDEN], vec![0.0; HIDDEN])
        .tensor("weight2", &[HIDDEN, characters], uniform(HIDDEN * characters, 0.0625))
        .tensor("bias2", &[characters], vec![0.0; characters])
        .build()
}

/// out[m][n] += sum over k of a[m * row + k * column] * b[k][n], k ascending.
fn add_product(out: &mut [f32], a: &[f32], (row, column): (usize, usize), b: &[f32], columns: usize) {
    for (block, rows) in out.chunks_mut(8 * columns).enumerate() {
        for (k, line) in b.chunks_exact(columns).enumerate() {
            for (r, out) in rows.chunks_exact_mut(columns).enumerate() {
                let factor = a[(8 * block + r) * row + k * column];
                out.iter_mut().zip(line).for_each(|(o, b)| *o += factor * b);
            }
        }
    }
}

/// What the forward pass of a batch leaves for the backward pass, and the sum of the losses.
struct Forward {
    inputs: Vec<f32>,
    positive: Vec<f32>,
    hidden: Vec<f32>,
    probabilities: Vec<f32>,
    loss: f64,
}

fn forward(params: &Params, text: &[u8], batch: &[usize]) -> Forward {
    let (embedding, bias1, bias2) = (params.value(0), params.value(2), params.value(4));
    let vector = |c: &u8| &embedding[usize::from(*c) * EMBED..][..EMBED];
    let inputs: Vec<f32> = batch.iter().flat_map(|&p| text[p - CONTEXT..p].iter().flat_map(vector)).copied().collect();
    let mut positive = bias1.repeat(batch.len());
    add_product(&mut positive, &inputs, (INPUTS, 1), &params.value(1), HIDDEN);
    positive.iter_mut().for_each(|z| *z = z.max(0.0));
    let hidden: Vec<f32> = positive.iter().map(|z| z * z).collect();
    let mut logits = bias2.repeat(batch.len());
    add_product(&mut logits, &hidden, (HIDDEN, 1), &params.value(3), bias2.len());
    let samples = logits.chunks_exact_mut(bias2.len()).zip(batch);
    let loss = samples.map(|(logits, &position)| softmax_loss(logits, usize::from(text[position]))).sum();
    Forward { inputs, positive, hidden, probabilities: logits, loss }
}

/// Turns logits into probabilities; -ln of that of `target`.
fn softmax_loss(logits: &mut [f32], target: usize) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let logarithm = f64::from(logits[target] - largest);
    logits.iter_mut().for_each(|l| *l = (*l - largest).exp());
    let sum: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|l| *l /= sum);
    f64::from(sum).ln() - logarithm
}

/// The mean loss over the batch and its gradients; each is reduced over the ranks while the next ones are computed.
fn backward(params: &Params, text: &[u8], batch: &[usize], ready: &Ready) -> ujoin::Result<f64> {
    let mut f = forward(params, text, batch);
    for (error, &position) in f.probabilities.chunks_exact_mut(params.shape(4)[0]).zip(batch) {
        error[usize::from(text[position])] -= 1.0;
        error.iter_mut().for_each(|e| *e /= batch.len() as f32);
    }
    let mut error = layer_backward(params, 3, &f.hidden, &f.probabilities, ready)?;
    error.iter_mut().zip(&f.positive).for_each(|(e, z)| *e *= 2.0 * z);
    let error = layer_backward(params, 1, &f.inputs, &error, ready)?;
    let mut grad = params.grad_mut(0);
    grad.fill(0.0);
    for (error, &c) in error.chunks_exact(EMBED).zip(batch.iter().flat_map(|&p| &text[p - CONTEXT..p])) {
        grad[usize::from(c) * EMBED..][..EMBED].iter_mut().zip(error).for_each(|(g, e)| *g += e);
    }
    drop(grad);
    ready(0).map(|()| f.loss / batch.len() as f64)
}

/// Gradients of the bias and the weight of a layer; the error of its inputs.
fn layer_backward(p: &Params, weight: usize, x: &[f32], error: &[f32], ready: &Ready) -> ujoin::Result<Vec<f32>> {
    let (inputs, outputs) = (p.shape(weight)[0], p.shape(weight)[1]);
    p.grad_mut(weight + 1).fill(0.0);
    add_product(&mut p.grad_mut(weight + 1), &vec![1.0; error.len() / outputs], (0, 1), error, outputs);
    ready(weight + 1)?;
    p.grad_mut(weight).fill(0.0);
    add_product(&mut p.grad_mut(weight), x, (1, inputs), error, outputs);
    ready(weight)?;
    let values = p.value(weight);
    let transposed: Vec<f32> = (0..inputs * outputs).map(|i| values[i % inputs * outputs + i / inputs]).collect();
    let mut below = vec![0.0; error.len() / outputs * inputs];
    add_product(&mut below, error, (outputs, 1), &transposed, inputs);
    Ok(below)
}

/// Bits per character on the text that nobody trains on; every rank takes each size-th batch.
fn evaluate(when: &str, group: &Group, params: &Params, held_out: &[u8], batch: usize) -> ujoin::Result<()> {
    let positions: Vec<usize> = (CONTEXT..held_out.len()).collect();
    let own = positions.chunks(batch).skip(group.rank()).step_by(group.size());
    let mut loss = [own.map(|batch| forward(params, held_out, batch).loss).sum::<f64>()];
    group.all_reduce(&mut loss, Reduce::Sum)?;
    println!(" held-out text {when} training: {:.3} bits per character", loss[0] / positions.len() as f64 / 2f64.ln());
    Ok(())
}

fn main() -> Result<()> {
    if let Some(odd) = env::args().skip(1).step_by(2).find(|arg| !OPTIONS.contains(&arg.as_str())) {
        return Err(format!("unknown option {odd}; there are {OPTIONS:?}").into());
    }
    let out = PathBuf::from(option("--out", "ujoin-example"));
    let (epochs, batch): (usize, usize) = (option("--epochs", "3").parse()?, option("--batch", "128").parse()?);
    let (seed, rounds): (u64, usize) = (option("--seed", "42").parse()?, option("--rounds", "0").parse()?);
    fs::create_dir_all(&out)?;
    let (mut train, held_out, characters) = load(&option("--text", "/usr/share/common-licenses"))?;
    let group = if env::var_os("RANK").is_some() { Group::from_env()? } else { Group::alone()? };
    let (rank, size) = (group.rank(), group.size());
    if rounds > 0 {
        let longest = CONTEXT + (rounds / epochs).max(1) * batch - batch / 2; // of the last rank: section 7
        train.truncate((longest * (size * (5 * size - 1) / 2)).div_ceil(3 * size - 1));
    }
    let params = initial(characters, seed)?;
    let ddp = Ddp::builder(&group).params(&params).division(Division::Samples).build()?;
    let opt = Zero::builder(&group, AdamW { lr: 0.004, eps: 1e-6, ..AdamW::default() }).params(&params).build()?;
    let join = Join::new([ddp.joinable(), opt.joinable()])?;
    evaluate("before", &group, &params, &held_out, batch)?;
    for epoch in 0..epochs {
        opt.set_hyper(None, "lr", 0.004 * (epochs - epoch) as f64 / epochs as f64)?;
        let positions = shuffled(train.len(), (rank, size), seed, epoch);
        join.run(|| {
            for (round, batch) in positions.chunks(batch).enumerate() {
                let loss = ddp.iteration(batch.len(), |ready| backward(&params, &train, batch, ready))?;
                opt.step()?;
                if epoch == 0 && round < 5 {
                    println!(" round {}: loss {loss:.6}", round + 1);
                }
            }
            Ok(())
        })?;
        println!(" epoch {}: {} rounds shadowed for others", epoch + 1, join.report()?.shadow_rounds);
    }
    let values = (0..params.len()).flat_map(|i| params.value(i).to_vec()).flat_map(f32::to_ne_bytes);
    let digest = Sha256::digest(values.collect::<Vec<u8>>());
    println!(" parameters sha256 {}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    opt.save_with(out.join("model.safetensors"), &SaveOptions::default().parameters())?;
    Ok(evaluate("after", &group, &params, &held_out, batch)?)
}
