// SPDX-License-Identifier: Apache-2.0
// ujoin from Node, through the FFI package koffi: a group of one, a join context, three steps of an optimizer.
// Node exports libuv's functions itself, which would take the place of the library's: use a library that was built with
// -DUJOIN_LIBUV_SOURCE=..., whose libuv is hidden inside.
// Usage: npm install koffi && node step.js LIBRARY
'use strict';
const koffi = require('koffi');

const library = koffi.load(process.argv[2] || 'libujoin.so.0');
for (const name of ['ujoin_group', 'ujoin_zero', 'ujoin_ctx', 'ujoin_joinable']) koffi.opaque(name);
koffi.struct('ujoin_group_options', {
  size: 'size_t', rendezvous: 'str', backend: 'str', name: 'str', store: 'void *', rank: 'int32_t', world_size: 'int32_t',
  timeout_ms: 'int64_t', rendezvous_timeout_ms: 'int64_t',
});
koffi.struct('ujoin_param', {
  name: 'str', data: 'void *', grad: 'void *', count: 'size_t', dtype: 'int32_t', grad_dtype: 'int32_t', device: 'int32_t',
  device_index: 'int32_t', shape: 'void *', ndim: 'int32_t', flags: 'int32_t', reserved: koffi.array('uint64_t', 2),
});
koffi.struct('ujoin_hyper', { name: 'str', value: 'double' });
koffi.struct('ujoin_zero_options', {
  size: 'size_t', hyper: 'ujoin_hyper *', hyper_count: 'size_t', idle_timeout_ms: 'int64_t', release: 'void *',
  release_data: 'void *',
});
koffi.struct('ujoin_ctx_report', {
  size: 'size_t', rounds: 'int64_t', shadow_rounds: 'int64_t', shadow_uses: 'int64_t', shadow_us: 'int64_t',
  wait_us: 'int64_t', is_last_joiner: 'int32_t', authoritative_rank: 'int32_t', joined: 'int32_t', stopped: 'int32_t',
});
const UJOIN_F32 = 1;
const UJOIN_OPTIMIZER_SGD = 2;

const bind = (declaration) => library.func(declaration);
const version = bind('const char *ujoin_version()');
const lastError = bind('const char *ujoin_last_error()');
const groupCreate = bind('int32_t ujoin_group_create(ujoin_group_options *options, _Out_ ujoin_group **out)');
const groupClose = bind('int32_t ujoin_group_close(ujoin_group *group, int64_t timeout_ms)');
const groupDestroy = bind('void ujoin_group_destroy(ujoin_group *group)');
const zeroCreate = bind('int32_t zero_create(ujoin_group *group, int32_t optimizer, ujoin_param *params, size_t count, ' +
  'ujoin_zero_options *options, _Out_ ujoin_zero **out)');
const zeroJoinable = bind('ujoin_joinable *zero_joinable(ujoin_zero *zero)');
const zeroStep = bind('int32_t zero_step(ujoin_zero *zero, void *options)');
const zeroDestroy = bind('void zero_destroy(ujoin_zero *zero)');
const ctxCreate = bind('int32_t ujoin_ctx_create(ujoin_joinable **joinables, size_t count, void *options, _Out_ ujoin_ctx **out)');
const ctxStart = bind('int32_t ujoin_ctx_start(ujoin_ctx *ctx)');
const ctxFinish = bind('int32_t ujoin_ctx_finish(ujoin_ctx *ctx)');
const ctxGetReport = bind('int32_t ujoin_ctx_get_report(ujoin_ctx *ctx, _Inout_ ujoin_ctx_report *out)');
const ctxDestroy = bind('void ujoin_ctx_destroy(ujoin_ctx *ctx)');

function check(status) {
  if (status < 0) throw new Error(lastError());
}
function create(call, ...args) {
  const out = [null];
  check(call(...args, out));
  return out[0];
}

const group = create(groupCreate, {
  size: koffi.sizeof('ujoin_group_options'), rendezvous: 'local://node', backend: 'self', name: null, store: null, rank: 0,
  world_size: 1, timeout_ms: 0, rendezvous_timeout_ms: 0,
});

// Memory outside of JavaScript's heap: the library borrows it until the optimizer is destroyed.
const weights = koffi.alloc('float', 3);
const gradient = koffi.alloc('float', 3);
koffi.encode(weights, 'float', [1, 2, 3], 3);
const optimizer = create(zeroCreate, group, UJOIN_OPTIMIZER_SGD, {
  name: 'w', data: weights, grad: gradient, count: 3, dtype: UJOIN_F32, grad_dtype: 0, device: 0, device_index: 0,
  shape: null, ndim: 0, flags: 0, reserved: [0, 0],
}, 1, {
  size: koffi.sizeof('ujoin_zero_options'), hyper: { name: 'lr', value: 0.5 }, hyper_count: 1, idle_timeout_ms: 0,
  release: null, release_data: null,
});
const join = create(ctxCreate, [zeroJoinable(optimizer)], 1, null);

check(ctxStart(join));
for (let batch = 0; batch < 3; batch++) {
  koffi.encode(gradient, 'float', [0.5, 0.5, 0.5], 3);
  check(zeroStep(optimizer, null));
}
check(ctxFinish(join));

const report = { size: koffi.sizeof('ujoin_ctx_report') };
for (const name of ['rounds', 'shadow_rounds', 'shadow_uses', 'shadow_us', 'wait_us', 'is_last_joiner', 'authoritative_rank',
  'joined', 'stopped']) report[name] = 0;
check(ctxGetReport(join, report));
console.log(`ujoin ${version()}: ${report.rounds} rounds, w = ${koffi.decode(weights, 'float', 3).join(' ')}`);
check(groupClose(group, -1));
ctxDestroy(join);
zeroDestroy(optimizer);
groupDestroy(group);
