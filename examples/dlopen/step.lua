-- SPDX-License-Identifier: Apache-2.0
-- ujoin from LuaJIT: a group of one, a join context, three steps of an optimizer. The header itself declares everything.
-- Usage: luajit step.lua LIBRARY HEADER      e.g. luajit step.lua libujoin.so.0 /usr/local/include/ujoin.h
local ffi = require("ffi")

-- LuaJIT has no preprocessor: leave out its lines, comments, the export macro and the braces of extern "C".
local function declarations(path)
    local text = assert(io.open(path)):read("*a")
    text = text:gsub("/%*.-%*/", ""):gsub('#ifdef __cplusplus.-#endif', ""):gsub("#[^\n]*\\?\n", "\n")
    return (text:gsub("__attribute__%b()", ""):gsub("UJOIN_API ", ""))
end

local library, header = arg[1] or "libujoin.so.0", arg[2] or "/usr/local/include/ujoin.h"
ffi.cdef(declarations(header))
local ujoin = ffi.load(library)

local function check(status)
    if status < 0 then error(ffi.string(ujoin.ujoin_last_error()), 2) end
    return status
end

-- Calls create(..., out) and returns the handle, which is destroyed when Lua collects it.
local function handle(kind, destroy, create, ...)
    local out, count, args = ffi.new(kind .. "*[1]"), select("#", ...), { ... }
    args[count + 1] = out
    check(create(unpack(args, 1, count + 1)))
    return ffi.gc(out[0], destroy)
end

local options = ffi.new("ujoin_group_options", { size = ffi.sizeof("ujoin_group_options"), backend = "self",
    rendezvous = "local://lua", rank = 0, world_size = 1 })
local group = handle("ujoin_group", ujoin.ujoin_group_destroy, ujoin.ujoin_group_create, options)

local weights, gradient = ffi.new("float[3]", 1, 2, 3), ffi.new("float[3]")
local parameter = ffi.new("ujoin_param", { name = "w", data = weights, grad = gradient, count = 3, dtype = ujoin.UJOIN_F32 })
local rate = ffi.new("ujoin_hyper", { "lr", 0.5 })
local zero_options = ffi.new("ujoin_zero_options", { size = ffi.sizeof("ujoin_zero_options"), hyper = rate, hyper_count = 1 })
local optimizer = handle("ujoin_zero", ujoin.zero_destroy, ujoin.zero_create, group, ujoin.UJOIN_OPTIMIZER_SGD, parameter, 1,
    zero_options)

local joinables = ffi.new("ujoin_joinable *[1]", ujoin.zero_joinable(optimizer))
local join = handle("ujoin_ctx", ujoin.ujoin_ctx_destroy, ujoin.ujoin_ctx_create, joinables, 1, nil)

check(ujoin.ujoin_ctx_start(join))
for _ = 1, 3 do
    for i = 0, 2 do gradient[i] = 0.5 end
    check(ujoin.zero_step(optimizer, nil))
end
check(ujoin.ujoin_ctx_finish(join))

local report = ffi.new("ujoin_ctx_report", { size = ffi.sizeof("ujoin_ctx_report") })
check(ujoin.ujoin_ctx_get_report(join, report))
print(("ujoin %s: %d rounds, w = %g %g %g"):format(ffi.string(ujoin.ujoin_version()), tonumber(report.rounds), weights[0],
    weights[1], weights[2]))
check(ujoin.ujoin_group_close(group, -1))
