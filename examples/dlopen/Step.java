// SPDX-License-Identifier: Apache-2.0
// ujoin from Java, through JNA: a group of one, a join context, three steps of an optimizer.
// Usage: java -cp jna.jar Step.java LIBRARY

import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import com.sun.jna.ptr.PointerByReference;

public final class Step {
    /** size_t is passed as a long: Java runs on 64-bit machines here. */
    public interface Ujoin extends Library {
        String ujoin_version();
        String ujoin_last_error();
        int ujoin_group_create(GroupOptions options, PointerByReference out);
        int ujoin_group_close(Pointer group, long timeoutMs);
        void ujoin_group_destroy(Pointer group);
        int zero_create(Pointer group, int optimizer, Param params, long count, ZeroOptions options, PointerByReference out);
        Pointer zero_joinable(Pointer zero);
        int zero_step(Pointer zero, Pointer options);
        void zero_destroy(Pointer zero);
        int ujoin_ctx_create(Pointer[] joinables, long count, Pointer options, PointerByReference out);
        int ujoin_ctx_start(Pointer ctx);
        int ujoin_ctx_finish(Pointer ctx);
        int ujoin_ctx_get_report(Pointer ctx, Report out);
        void ujoin_ctx_destroy(Pointer ctx);
    }

    @Structure.FieldOrder({"size", "rendezvous", "backend", "name", "store", "rank", "world_size", "timeout_ms",
        "rendezvous_timeout_ms"})
    public static final class GroupOptions extends Structure {
        public long size = size();
        public String rendezvous = "local://java";
        public String backend = "self";
        public String name;
        public Pointer store;
        public int rank;
        public int world_size = 1;
        public long timeout_ms;
        public long rendezvous_timeout_ms;
    }

    @Structure.FieldOrder({"name", "data", "grad", "count", "dtype", "grad_dtype", "device", "device_index", "shape", "ndim",
        "flags", "reserved"})
    public static final class Param extends Structure {
        public String name;
        public Pointer data;
        public Pointer grad;
        public long count;
        public int dtype;
        public int grad_dtype;
        public int device;
        public int device_index;
        public Pointer shape;
        public int ndim;
        public int flags;
        public long[] reserved = new long[2];
    }

    @Structure.FieldOrder({"name", "value"})
    public static final class Hyper extends Structure implements Structure.ByReference {
        public String name = "lr";
        public double value = 0.5;
    }

    @Structure.FieldOrder({"size", "hyper", "hyper_count", "idle_timeout_ms", "release", "release_data"})
    public static final class ZeroOptions extends Structure {
        public long size = size();
        public Hyper hyper = new Hyper();
        public long hyper_count = 1;
        public long idle_timeout_ms;
        public Pointer release;
        public Pointer release_data;
    }

    @Structure.FieldOrder({"size", "rounds", "shadow_rounds", "shadow_uses", "shadow_us", "wait_us", "is_last_joiner",
        "authoritative_rank", "joined", "stopped"})
    public static final class Report extends Structure {
        public long size = size();
        public long rounds;
        public long shadow_rounds;
        public long shadow_uses;
        public long shadow_us;
        public long wait_us;
        public int is_last_joiner;
        public int authoritative_rank;
        public int joined;
        public int stopped;
    }

    private static final int F32 = 1;
    private static final int SGD = 2;
    private static Ujoin ujoin;

    private static void check(int status) {
        if (status < 0) {
            throw new IllegalStateException(ujoin.ujoin_last_error());
        }
    }

    public static void main(String[] args) {
        ujoin = Native.load(args.length > 0 ? args[0] : "ujoin", Ujoin.class);
        PointerByReference out = new PointerByReference();
        check(ujoin.ujoin_group_create(new GroupOptions(), out));
        Pointer group = out.getValue();

        // Memory outside of Java's heap: the library borrows it until the optimizer is destroyed.
        Memory weights = new Memory(3 * Float.BYTES);
        Memory gradient = new Memory(3 * Float.BYTES);
        weights.write(0, new float[] {1, 2, 3}, 0, 3);
        Param parameter = new Param();
        parameter.name = "w";
        parameter.data = weights;
        parameter.grad = gradient;
        parameter.count = 3;
        parameter.dtype = F32;
        check(ujoin.zero_create(group, SGD, parameter, 1, new ZeroOptions(), out));
        Pointer optimizer = out.getValue();
        check(ujoin.ujoin_ctx_create(new Pointer[] {ujoin.zero_joinable(optimizer)}, 1, null, out));
        Pointer join = out.getValue();

        check(ujoin.ujoin_ctx_start(join));
        for (int batch = 0; batch < 3; batch++) {
            gradient.write(0, new float[] {0.5f, 0.5f, 0.5f}, 0, 3);
            check(ujoin.zero_step(optimizer, null));
        }
        check(ujoin.ujoin_ctx_finish(join));

        Report report = new Report();
        check(ujoin.ujoin_ctx_get_report(join, report));
        float[] w = weights.getFloatArray(0, 3);
        System.out.println("ujoin " + ujoin.ujoin_version() + ": " + report.rounds + " rounds, w = " + w[0] + " " + w[1] + " "
            + w[2]);
        check(ujoin.ujoin_group_close(group, -1));
        ujoin.ujoin_ctx_destroy(join);
        ujoin.zero_destroy(optimizer);
        ujoin.ujoin_group_destroy(group);
    }
}
