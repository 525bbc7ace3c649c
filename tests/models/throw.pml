/* SPDX-License-Identifier: Apache-2.0 */
/* Throw mode: notify waits until the number of ranks that have this use is known; fewer than all: every rank leaves there.
 * Main hooks never run. Every use waits, the first of a round and the others (join_context.cpp, notify).
 * Checked: one outcome of a context on all ranks (over, stopped, or exhausted at one use, which begins a round); nobody has entered
 * an operation of the use that is missing; nobody begins a use beyond a stop; with deaths and aborts every survivor ends, and
 * outcomes agree. The abort of a rank ends an operation also for those who wait for a third (watch.hpp, AbortEnds).
 * -DW= ranks  -DC= contexts  -DMAXIN= rounds of a rank  -DUSES= uses of a round  -DPOSTC  a post hook with an operation
 * -DDEATHS= ranks that die, at any moment  -DABORTS= ranks that abort or leave the group between calls, or have a
 *             post hook that fails
 * -DASYNC     rank 0 may be aborted from another thread, at any moment: of three ranks, two may then differ, since one may have
 *             blamed it before it published what the other saw
 * -DSTOP= requests: they ride in operations, and stand on the board as stop_at  -DR= entries of the ring  -DNOOP  no operations
 * -DFIRSTONLY only the first use of a round waits: right, too
 * -DBEYOND    wrong: a rank without inputs leaves as soon as one rank has the use that it lacks
 * -DNOWAIT    wrong: notify decides from what it sees at once
 * -DLASTONLY  wrong: only the last use of a round waits
 * -DNOMARK    wrong: an abort leaves no mark
 * -DLIVE      wrong: finish looks at live requests instead of the frozen ones
 * -DNOLAST    wrong: the own mark is not looked at last */
#include "words.h"
#ifndef W
#define W 3
#endif
#ifndef C
#define C 3
#endif
#ifndef MAXIN
#define MAXIN 2
#endif
#ifndef USES
#define USES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef STOP
#define STOP 0
#endif
#ifndef R
#define R 2
#endif
#define MAXU (MAXIN*USES)
#define OPS (C*(MAXU+1)+1)
#define OVER 1
#define STOPPED 2
#define EXHAUSTED 3           /* + use */
#define BK(c) ((c)&1)
#define B(k) L[k].b[BK(c)]
typedef Bank { byte tag; bit st; byte pos;
#if STOP
  bit stp; byte at
#endif
}
typedef Line { Bank b[BANKS] }
Line L[W];
byte arr[W]; typedef Slot { byte fp[SLOTS]; bit stp[SLOTS] } Slot S[W];
bit dead[W]; byte fate[W]; byte deaths, aborts;
bit aborted[W];               /* by its program, or because of a rank that was */
#if STOP
bit want[W]; byte reqs;
byte stopped_at[C+1];         /* ghost: 1 + uses done by those that left by a stop */
#endif
bit err[C+1];                 /* ghost: somebody returned an error from this context, not from its post hooks */
bit opok[OPS+1], operr[OPS+1];
byte outcome[C+1];            /* ghost */
byte entered[C+1];            /* ghost: 1 + last use whose operation somebody entered */

#define FAILED(k) (dead[k] || fate[k] != FATE_NONE)
#define BAD_OP(k) (k != r && FAILED(k) && (arr[k] < seq || aborted[k]))
#define BAD_N(k,u) (k != r && FAILED(k) && !KNOWN(k,u))
#if W==2
#define ANY_BAD_OP (BAD_OP(0) || BAD_OP(1))
#define ANY_BAD_N(u) (BAD_N(0,u) || BAD_N(1,u))
#else
#define ANY_BAD_OP (BAD_OP(0) || BAD_OP(1) || BAD_OP(2))
#define ANY_BAD_N(u) (BAD_N(0,u) || BAD_N(1,u) || BAD_N(2,u))
#endif
#if DEATHS == 0
#define MAYDIE skip
#define OR_DIES
#else
#define MAYDIE if :: atomic { deaths < DEATHS -> deaths++ } goto dies :: 1 fi
#define OR_DIES :: atomic { deaths < DEATHS -> deaths++ } goto dies
#endif
#if ABORTS == 0
#define MAYABORT skip
#else
#define MAYABORT if :: atomic { aborts < ABORTS -> aborts++ } goto gives_up :: 1 fi
#endif
#ifdef ASYNC
#define CHECK_OWN if :: fate[r] != FATE_NONE -> goto over :: else fi
#define OR_ABORTED :: fate[r] != FATE_NONE -> goto over
#ifdef NOLAST
#define LAST_LOOK skip
#else
#define LAST_LOOK CHECK_OWN
#endif
#else
#define CHECK_OWN skip
#define OR_ABORTED
#define LAST_LOOK skip
#endif

#if STOP
active proctype signals() {
end: do :: reqs < STOP -> atomic { reqs++; if :: want[0] = 1 :: want[W-1] = 1 fi } od
}
#endif
inline coll(fpv) {
  MAYDIE;
  d_step {
    seq = arr[r]+1; S[r].fp[seq&1] = fpv;
#if STOP
    S[r].stp[seq&1] = want[r]; shown = shown || want[r];
#endif
  }
  arr[r] = seq;
  k = 0;
  do
  :: k < W -> if :: arr[k] >= seq -> k++ :: arr[k] < seq && ANY_BAD_OP -> operr[seq] = 1; goto fails OR_DIES OR_ABORTED fi
  :: else -> break
  od;
  opok[seq] = 1;
  k = 0;
  do
  :: k < W -> d_step { assert(arr[k] <= seq+1); assert(S[k].fp[seq&1] == fpv);
#if STOP
       agreed = agreed || S[k].stp[seq&1];
#endif
       k++ }
  :: else -> break
  od; k = 0;
}
#define MINE(k) (B(k).tag == c)
#define KNOWN(k,u) (MINE(k) && (B(k).pos > u || B(k).st == JOINED))
inline count(u) {              /* n = ranks that started use u; one rank per step */
  k = 0; n = 0;
  do
  :: k < W ->
#ifndef NOWAIT
     if :: KNOWN(k,u) -> skip :: !KNOWN(k,u) && ANY_BAD_N(u) -> err[c] = 1; goto fails OR_DIES OR_ABORTED fi;
#endif
     d_step { assert(B(k).tag <= c); if :: MINE(k) && B(k).pos > u -> n++ :: else fi; k++ }
  :: else -> break
  od; k = 0;
}
inline end_as(v) { d_step { assert(outcome[c] == 0 || outcome[c] == v); outcome[c] = v } }
#if STOP
inline look() {                /* the ring is never full in throw mode; what it shows of stops */
  k = 0;
  do
  :: k < W -> if
              :: k != r -> assert((MINE(k) -> B(k).pos : 0) + R > own); d_step { if :: MINE(k) && B(k).at < at -> at = B(k).at :: else fi }
              :: else
              fi; k++
  :: else -> break
  od; k = 0
}
#endif

proctype rank(byte r) {
  byte c = 1, own, k, n, seq, i; bit thrown;
#if STOP
  byte at = NONE; bit agreed, shown, leaving, answer;
#endif
ctx:
  MAYDIE; CHECK_OWN;
  if :: c > C -> goto done :: else fi;
  d_step { B(r).pos = 0; B(r).st = RUN; B(r).tag = c;
#if STOP
    B(r).stp = 0; B(r).at = NONE
#endif
  }
  do
  :: own < MAXU && !thrown ->
     MAYABORT; CHECK_OWN;
#if STOP
     look();
     leaving = (agreed || at <= own);
     if
     :: leaving -> d_step { assert(stopped_at[c] == 0 || stopped_at[c] == 1+own); stopped_at[c] = 1+own } break
     :: else
     fi;
#endif
     i = 0;
     do
     :: i < USES && !thrown ->
        MAYDIE; CHECK_OWN;
#if STOP
        if :: want[r] && B(r).at == NONE -> d_step { shown = 1; B(r).at = own+R; if :: own+R < at -> at = own+R :: else fi } :: else fi;
        assert(stopped_at[c] == 0 || own < stopped_at[c]-1);
#endif
        B(r).pos = own+1;
#ifdef FIRSTONLY
        if :: i == 0 -> count(own) :: else -> n = W fi;
#else
#ifdef LASTONLY
        if :: i == USES-1 -> count(own) :: else -> n = W fi;
#else
        count(own);
#endif
#endif
        if
        :: n < W -> thrown = 1
        :: else -> n = 0;
           d_step { if :: i == 0 -> assert(outcome[c] == 0) :: else fi; if :: entered[c] < own+1 -> entered[c] = own+1 :: else fi }
#ifndef NOOP
           coll(c*16+own);
#endif
           own++
        fi;
        i++
     :: else -> break
     od
  :: break
  od;
  i = 0;
  if
  :: thrown -> n = 0; assert(entered[c] <= own && own % USES == 0); LAST_LOOK; end_as(EXHAUSTED+own)
  :: else ->
     MAYDIE; MAYABORT; CHECK_OWN;
#if STOP
     d_step { shown = shown || want[r]; B(r).stp = (want[r] || leaving || agreed); B(r).st = JOINED }
#else
     B(r).st = JOINED;
#endif
#ifdef BEYOND
     do
     :: (MINE(0) && L[0].b[BK(c)].pos > own) -> n = 1; break
     :: (MINE(1) && L[1].b[BK(c)].pos > own) -> n = 1; break
     :: (MINE(W-1) && L[W-1].b[BK(c)].pos > own) -> n = 1; break
     :: (KNOWN(0,own) && KNOWN(1,own) && KNOWN(W-1,own) && L[0].b[BK(c)].pos == own && L[1].b[BK(c)].pos == own && L[W-1].b[BK(c)].pos == own) -> n = 0; break
     od;
#else
     count(own);
#endif
     if
     :: n > 0 -> n = 0; assert(entered[c] <= own && own % USES == 0); LAST_LOOK; end_as(EXHAUSTED+own)
     :: else ->
        LAST_LOOK;
#if STOP
        k = 0;
#ifdef LIVE
        do :: k < W -> answer = answer || want[k]; k++ :: else -> break od;
#else
        do :: k < W -> d_step { answer = answer || B(k).stp; k++ } :: else -> break od;
#endif
        k = 0;
        assert(answer || stopped_at[c] == 0);
        if :: answer -> end_as(STOPPED) :: else -> end_as(OVER) fi;
        if :: answer && shown -> want[r] = 0 :: else fi;
#else
        end_as(OVER);
#endif
        MAYABORT;                                       /* a post hook fails */
#ifdef POSTC
        coll(c*16+15)
#endif
     fi
  fi;
  d_step { seq = 0; own = 0; thrown = 0; n = 0;
#if STOP
    at = NONE; agreed = 0; shown = 0; leaving = 0; answer = 0;
#endif
    c++ }
  goto ctx;
done: skip;
dies:
#if DEATHS > 0
  dead[r] = 1;             /* exits, one way or the other */
#endif
  goto over;
gives_up:
#ifndef NOMARK
  if
  :: aborted[r] = 1; fate[r] = FATE_FAILED
  :: fate[r] = FATE_LEFT                                /* says goodbye */
  fi;
#endif
  goto over;
fails:
  k = 0;                   /* who gives up because another has aborted counts as aborted too */
  d_step { do :: k < W -> if :: fate[k] != FATE_NONE && aborted[k] -> aborted[r] = 1 :: else fi; k++ :: else -> break od; k = 0 }
  fate[r] = FATE_FAILED;
over: k = 1;
#if DEATHS > 0 && ABORTS == 0 && !defined(ASYNC)
  do :: k <= OPS -> assert(!(opok[k] && operr[k])); k++ :: else -> break od;
  k = 1;
#endif
#if W == 2 || !defined(ASYNC)
  do :: k <= C -> assert(!(outcome[k] && err[k])); k++ :: else -> break od;
#endif
  skip
}
#if DEATHS > 0
active proctype calm() { deaths = DEATHS }
#endif
#ifdef ASYNC
active proctype other_thread() { if :: d_step { aborted[0] = 1; fate[0] = FATE_FAILED } :: 1 fi }
#endif
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
