/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that stay open over several uses: each rank has a queue, which its progress thread runs in order, one operation at
 * a time (comm/group.cpp); notify comes back at once, and handles may be waited for later or never. stopped() and finish complete
 * what is in flight first; a hook, and a use that finds a rank exhausted, may leave operations open into the next context.
 * Checked: no hang; same operation on all ranks; two slots are enough however many are open; a stop takes effect before the same
 * use everywhere; finish answers alike; a stop that is told late belongs to its own context; with deaths every survivor ends, and a
 * context ends alike. (One operation may not: a rank that gives up may still have a thread that enters it.)
 * -DW= ranks  -DC= contexts  -DMAXU= uses  -DR= entries of the ring  -DREQ= requests  -DDEATHS= ranks that die
 * -DCALLS     no progress thread: operations advance inside calls, and a wait for the board completes them first
 * -DTHROW     throw mode
 * -DNODRAIN   wrong: stopped() does not complete what is in flight
 * -DNOMOVE    wrong: with CALLS, a wait for the board leaves the operations where they are
 * -DONEBIT    wrong: the agreement to stop is a bit, set if its context is still armed
 * -DTWOOPEN   wrong: two operations of a rank are in the slots at once */
#include "words.h"
#ifndef W
#define W 2
#endif
#ifndef C
#define C 1
#endif
#ifndef MAXU
#define MAXU 3
#endif
#ifndef R
#define R 2
#endif
#ifndef REQ
#define REQ 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define QUEUE (C*MAXU+1)
#define EXHAUSTED 3          /* + use */

typedef Bank { byte tag; bit st; bit stp; byte pos; byte total }
typedef Line { Bank b[BANKS] }
Line L[W];
byte arr[W]; typedef Slot { byte fp[SLOTS]; bit stp[SLOTS] } Slot S[W];
/* of one rank, shared by its two threads */
typedef Queue { byte issued; byte done; byte fp[QUEUE+1]; bit stp[QUEUE+1] }
Queue Q[W];
byte armed[W];               /* number of the armed context */
byte agreed[W];              /* the context that is to stop */
bit inside[W];               /* a call is running: operations may advance */
bit quits[W], failed[W];
bit want[W]; byte reqs;
bit dead[W]; byte fate[W]; byte deaths;
/* ghosts */
byte stopped_at[C+1], outcome[C+1];     /* 1 + uses done; 1 over, 2 stopped, 3 + u exhausted */
bit err[C+1];

#define B(k) L[k].b[c&1]
#define IN(k) (B(k).tag == c)
#define ISJ(k) (IN(k) && B(k).st == JOINED)
#define POS(k) (IN(k) -> B(k).pos : 0)
#define USED(k) (IN(k) -> (B(k).st == JOINED -> B(k).total : B(k).pos) : 0)
#define KNOWN(k,u) (IN(k) && (B(k).pos > u || B(k).st == JOINED))
#define M2(a,b) ((a) > (b) -> (a) : (b))
#define FAILED(k) (dead[k] || fate[k] != FATE_NONE)
#if W==2
#define ANY(P) (P(0) || P(1))
#define MOST M2(USED(0),USED(1))
#else
#define ANY(P) (P(0) || P(1) || P(2))
#define MOST M2(USED(0),M2(USED(1),USED(2)))
#endif
#define CAUGHT(k) (ISJ(k) && B(k).pos >= MOST)
#define BAD_OP(k) (k != r && FAILED(k) && arr[k] < seq)
#define BAD_ROOM(k) (k != r && FAILED(k) && POS(k)+R <= own)
#define BAD_N(k) (k != r && FAILED(k) && !KNOWN(k,own))
#define BAD_BOARD(k) (k != r && FAILED(k) && !CAUGHT(k))
#if DEATHS == 0
#define LIVE true
#define OR_FAILS
#define OR_FAILS_IF(p)
#else
#define LIVE (!dead[r])
#define OR_FAILS :: dead[r] -> goto over :: failed[r] -> err[c] = 1; goto fails      /* dead, or an operation has failed */
#define OR_FAILS_IF(p) :: (p) -> err[c] = 1; goto fails
#endif
#define IDLE (Q[r].issued == Q[r].done)

#if REQ > 0
active proctype signals() {
end: do :: reqs < REQ -> atomic { reqs++; if :: want[0] = 1 :: want[W-1] = 1 fi } od
}
#endif
#if DEATHS > 0
active proctype reaper() { do :: deaths < DEATHS -> atomic { deaths++; if :: dead[0] = 1 :: dead[W-1] = 1 fi } :: deaths = DEATHS; break od }
#endif

#ifdef CALLS
#define MAY_MOVE (inside[r] || quits[r])
#else
#define MAY_MOVE true
#endif
proctype progress(byte r) {
  byte seq, k; bit told;
#ifdef ONEBIT
  bit of_this;
#endif
  do
  :: atomic { !IDLE && MAY_MOVE && LIVE && !failed[r] ->
     seq = Q[r].done+1;
#ifdef TWOOPEN
     if :: Q[r].issued > seq -> S[r].fp[(seq+1)&1] = Q[r].fp[seq+1]; S[r].stp[(seq+1)&1] = Q[r].stp[seq+1]; arr[r] = seq+1 :: else -> arr[r] = seq fi;
#endif
     S[r].fp[seq&1] = Q[r].fp[seq]; S[r].stp[seq&1] = Q[r].stp[seq]; }
#ifndef TWOOPEN
     if :: atomic { LIVE -> arr[r] = seq } :: !LIVE -> goto over fi;
#endif
     k = 0;
     do
     :: k < W ->
        if
        :: MAY_MOVE && arr[k] >= seq -> k++
#if DEATHS > 0
        :: MAY_MOVE && arr[k] < seq && ANY(BAD_OP) -> failed[r] = 1; fate[r] = FATE_FAILED; goto over
        :: dead[r] -> goto over
#endif
        fi
     :: else -> break
     od;
     k = 0;
     do :: k < W -> d_step { assert(arr[k] <= seq+1); assert(S[k].fp[seq&1] == Q[r].fp[seq]); told = told || S[k].stp[seq&1]; k++ } :: else -> break od;
     k = 0;
     /* Gate::after */
#ifdef ONEBIT
     of_this = (armed[r] == Q[r].fp[seq]/16);
     if :: told && of_this -> agreed[r] = armed[r] :: else fi;
     of_this = 0;
#else
     if :: told -> agreed[r] = Q[r].fp[seq]/16 :: else fi;
#endif
     told = 0;
     Q[r].done++
  :: atomic { IDLE && quits[r] -> goto over }
#if DEATHS > 0
  :: dead[r] || failed[r] -> goto over
#endif
  od;
over: skip
}

inline submit(u) {
  d_step { Q[r].issued++; Q[r].fp[Q[r].issued] = c*16+u; Q[r].stp[Q[r].issued] = want[r]; shown = shown || want[r] }
}
inline complete() {            /* what is in flight */
  inside[r] = 1;
  if :: IDLE -> skip OR_FAILS fi;
  inside[r] = 0
}
inline before_board() {        /* the others may need an operation of this rank that is still open */
#if defined(CALLS) && !defined(NOMOVE)
  complete()
#else
  skip
#endif
}
/* A handle may be waited for now, or later. */
inline maybe_wait() { if :: complete() :: skip fi }
inline end_as(v) { d_step { if :: LIVE -> assert(outcome[c] == 0 || outcome[c] == v); outcome[c] = v :: else fi } }

proctype rank(byte r) {
  byte c = 1, own, u, f, k, hp, av, n; bit hs, shown, leaving, thrown;
ctx:
  if :: atomic { LIVE -> armed[r] = c; agreed[r] = 0; B(r).pos = 0; B(r).stp = 0; B(r).st = RUN; B(r).tag = c } OR_FAILS fi;
  do
  :: own < MAXU && !thrown ->
     /* stopped() */
#ifndef NODRAIN
     if :: REQ > 0 -> complete() :: else fi;
#endif
     leaving = (agreed[r] == c);
     if
     :: leaving -> d_step { assert(stopped_at[c] == 0 || stopped_at[c] == 1+own); stopped_at[c] = 1+own } break
     :: else
     fi;
     /* notify: the ring rule */
     k = 0;
     do
     :: k < W -> if
                 :: k == r || POS(k)+R > own -> skip
                 :: else -> before_board(); if :: POS(k)+R > own -> skip OR_FAILS OR_FAILS_IF(ANY(BAD_ROOM)) fi
                 fi; k++
     :: else -> break
     od;
     k = 0;
     assert(stopped_at[c] == 0 || own < stopped_at[c]-1);
     if :: atomic { LIVE -> B(r).pos = own+1 } OR_FAILS fi;
#ifdef THROW
     k = 0; n = 0;
     do
     :: k < W ->
        if :: KNOWN(k,own) -> skip :: else -> before_board(); if :: KNOWN(k,own) -> skip OR_FAILS OR_FAILS_IF(ANY(BAD_N)) fi fi;
        if :: USED(k) > own -> n++ :: else fi; k++
     :: else -> break
     od;
     k = 0;
     thrown = (n < W); n = 0;
     if :: thrown -> break :: else fi;
#endif
     submit(own); own++;
     maybe_wait()
  :: break
  od;
  if
  :: thrown -> end_as(EXHAUSTED+own)           /* operations may be in flight still */
  :: else ->
     /* finish */
     complete();
     d_step { shown = shown || want[r]; hs = want[r] || leaving || agreed[r] == c }
     if :: atomic { LIVE -> B(r).total = own; B(r).stp = hs; B(r).st = JOINED } OR_FAILS fi;
     hs = 0;
#ifdef THROW
     k = 0; n = 0;
     do
     :: k < W ->
        if :: KNOWN(k,own) -> skip OR_FAILS OR_FAILS_IF(ANY(BAD_N)) fi;
        if :: USED(k) > own -> n++ :: else fi; k++
     :: else -> break
     od;
     k = 0;
     if :: n > 0 -> n = 0; end_as(EXHAUSTED+own); goto next :: else fi;
     u = own;
#else
     u = own; f = 0;
     do
     :: f == W -> break
     :: f < W ->
        d_step { hp = POS(f); hs = ISJ(f); if :: hs == JOINED -> av = (B(f).total > u -> 1 : 2) :: else -> av = (hp > u -> 1 : 0) fi }
        if
        :: av == 1 ->
           submit(u); maybe_wait();                /* the main hook */
           if :: atomic { LIVE -> B(r).pos = u+1 } OR_FAILS fi;
           u++
        :: av == 2 -> f++
        :: av == 0 ->
           before_board();
           if :: (POS(f) != hp || ISJ(f) != hs) -> skip OR_FAILS OR_FAILS_IF(ANY(BAD_BOARD)) fi
        fi;
        d_step { hp = 0; hs = 0; av = 0 }
     od;
     f = 0; k = 0;
     do
     :: k < W ->
        if
        :: ISJ(k) && B(k).pos >= u -> skip
        :: else -> before_board(); if :: ISJ(k) && B(k).pos >= u -> skip OR_FAILS OR_FAILS_IF(ANY(BAD_BOARD)) fi
        fi; k++
     :: else -> break
     od;
     k = 0;
#endif
     d_step {
       do :: k < W -> assert(ISJ(k) && B(k).total <= u); hs = hs || B(k).stp; k++ :: else -> break od; k = 0;
       assert(stopped_at[c] == 0 || (hs && u == stopped_at[c]-1))
     }
     if :: hs -> end_as(2) :: else -> end_as(1) fi;
     if :: hs && shown -> want[r] = 0 :: else fi
  fi;
next:
  k = 0;
  d_step { own = 0; u = 0; hs = 0; shown = 0; leaving = 0; thrown = 0; c++ }
  if :: c <= C -> goto ctx :: else fi;
  quits[r] = 1;                                    /* the group is closed: that completes everything */
  goto over;
#if DEATHS > 0
fails: fate[r] = FATE_FAILED; failed[r] = 1;
#endif
over: k = 1;
#if DEATHS > 0
  do :: k <= C -> assert(!(outcome[k] && err[k])); k++ :: else -> break od;
#endif
  skip
}
init { atomic { byte i = 0; do :: i < W -> run rank(i); run progress(i); i++ :: else -> break od; i = 0 } }
