/* SPDX-License-Identifier: Apache-2.0 */
/* An agreed stop while ranks die, abort or have a main hook that fails. Both ways of a stop at once, as notify, replay and
 * stopped() have them: a request rides in the operations of a use, and stands on the board as stop_at = that use + R; the others'
 * positions and stop_at are looked at again only when the horizon is reached. The program asks stopped() before each round.
 * Checked: every survivor ends; those that leave by a stop leave before the same round, and nobody begins a use beyond it;
 * finish ends alike on all survivors and answers the same; a rank that has finished is never blamed; one request stops one
 * context. The abort of a rank ends an operation also for those who wait for a third (watch.hpp, AbortEnds).
 * -DW= ranks  -DC= contexts  -DROUNDS= of a rank at most  -DUSES= uses of a round  -DR= entries of the ring
 * -DREQ= requests  -DDEATHS=  -DABORTS= ranks that give up in the loop or in a main hook
 * -DOPS=       1: each use has an operation, 0: none, 2: every second one
 * -DLATEREAD   wrong: who runs out of inputs reads the request twice, for what it shows and for what it forgets
 * -DLOOKONCE   wrong: the others' stop_at are looked at when the context begins, and never again
 * -DALONE      wrong: who has a request leaves at once
 * -DFORGET     wrong: a stop ends the rank's work: it does not join, and exits
 * -DANYDEAD    wrong: any failed rank fails every wait on the board */
#include "words.h"
#ifndef W
#define W 2
#endif
#ifndef C
#define C 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef USES
#define USES 1
#endif
#ifndef R
#define R 2
#endif
#ifndef REQ
#define REQ 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef OPS
#define OPS 1
#endif
#define MAXU (ROUNDS*USES)
#define HAS_OP(u) (OPS == 1 || (OPS == 2 && ((u)&1)))

typedef Bank { byte tag; bit st; bit stp; byte pos; byte total; byte at }       /* (tag,st,stp,pos) is one word */
typedef Line { Bank b[BANKS]; byte fate; bit aborted }
Line L[W];
byte arr[W]; typedef Slot { bit stp[SLOTS] } Slot S[W];
bit want[W];                     /* a stop is asked for, and no finish has answered yet */
bit dead[W];                     /* the pidfd has fired */
byte reqs, deaths, aborts;
/* ghosts */
bit fin[W];                      /* has returned from its last finish, and exits */
typedef Ctx { byte stopped_at; byte begun; byte answer; bit finok; bit finerr }      /* stopped_at: 1 + uses done; answer: 1 no, 2 yes */
Ctx G[C+1];
byte stops;
#if ABORTS == 0
bit opok[C*MAXU+1], operr[C*MAXU+1];
#define OPOK opok[seq] = 1
#define OPERR operr[seq] = 1
#else
#define OPOK skip
#define OPERR skip
#endif

#define B(k) L[k].b[c&1]
#define IN(k) (B(k).tag == c)
#define ISJ(k) (IN(k) && B(k).st == JOINED)
#define POS(k) (IN(k) -> B(k).pos : 0)
#define USED(k) (IN(k) -> (B(k).st == JOINED -> B(k).total : B(k).pos) : 0)
#define M2(a,b) ((a) > (b) -> (a) : (b))
#define FAILED(k) (dead[k] || L[k].fate != FATE_NONE)
#if W==2
#define ANY(P) (P(0) || P(1))
#define MOST M2(USED(0),USED(1))
#else
#define ANY(P) (P(0) || P(1) || P(2))
#define MOST M2(USED(0),M2(USED(1),USED(2)))
#endif
#define CAUGHT(k) (ISJ(k) && B(k).pos >= MOST)
#define ROOM(k) (POS(k)+R > v)
#ifdef ANYDEAD
#define BAD_BOARD(k) (k != r && FAILED(k))
#define BAD_ROOM(k) (k != r && FAILED(k))
#else
#define BAD_BOARD(k) (k != r && FAILED(k) && !CAUGHT(k))
#define BAD_ROOM(k) (k != r && FAILED(k) && !ROOM(k))
#endif
#define BAD_OP(k) (k != r && FAILED(k) && (arr[k] < seq || L[k].aborted))
#define FINISHED(k) (k != r && fin[k] && FAILED(k) && !CAUGHT(k))

#define MAYDIE  if :: atomic { deaths < DEATHS -> deaths++ } goto dies :: 1 fi
#define MAYABORT  if :: atomic { aborts < ABORTS -> aborts++ } goto gives_up :: 1 fi
#define OR_DIES  :: atomic { deaths < DEATHS -> deaths++ } goto dies

active proctype signals() {
end: do :: reqs < REQ -> atomic { reqs++; if :: want[0] = 1 :: want[W-1] = 1 fi } od
}

inline coll() {
  MAYDIE;
  d_step { seq = arr[r]+1; S[r].stp[seq&1] = want[r]; shown = shown | want[r] }
  arr[r] = seq;
  k = 0;
  do
  :: k == W -> break
  :: k < W -> if :: arr[k] >= seq -> k++ :: arr[k] < seq && ANY(BAD_OP) -> OPERR; G[c].finerr = 1; goto fails OR_DIES fi
  od;
  OPOK; k = 0;
  d_step { do :: k < W -> assert(arr[k] <= seq+1); agreed = agreed | S[k].stp[seq&1]; k++ :: else -> break od; k = 0 }
}
/* the ring rule for use v; what it shows of stops holds until use `horizon` */
inline make_room(v) {
  k = 0; least = NONE-R;
  do
  :: k == W -> break
  :: k == r -> k++
  :: k < W && k != r ->
     if :: ROOM(k) -> skip :: !ROOM(k) && ANY(BAD_ROOM) -> G[c].finerr = 1; goto fails OR_DIES fi;
     d_step { hp = POS(k); hs = IN(k); if :: hp < least -> least = hp :: else fi }
#ifdef LOOKONCE
     hs = hs && v == 0;
#endif
     if :: hs && B(k).at < at -> at = B(k).at :: else fi;
     d_step { hp = 0; hs = 0; k++ }
  od;
  k = 0;
  d_step { horizon = least+R; least = 0 }
}
inline ask(v) {
  if
  :: want[r] && B(r).at == NONE -> d_step { shown = 1; if :: v+R < at -> at = v+R :: else fi; B(r).at = v+R }   /* released by the next head */
  :: else
  fi
}
inline use() {
  if :: own >= horizon -> make_room(own) :: else fi;
  ask(own);
  MAYDIE;
  d_step {
    assert(G[c].stopped_at == 0 || own < G[c].stopped_at-1);     /* nobody begins a use beyond the stop */
    own++; B(r).pos = own; if :: own > G[c].begun -> G[c].begun = own :: else fi
  }
  if :: HAS_OP(own-1) -> coll() :: else fi
}

proctype rank(byte r) {
  byte c = 1, own, u, f, k, seq, hp, av, i, horizon, least, at = NONE; bit hs, agreed, shown, leaving;
ctx:
  MAYDIE;
  d_step { B(r).pos = 0; B(r).at = NONE; B(r).stp = 0; B(r).st = RUN; B(r).tag = c }
  do
  :: own < MAXU ->
     /* stopped() */
     if :: !agreed && own >= horizon -> make_room(own) :: else fi;
     leaving = (agreed || at <= own);
#ifdef ALONE
     leaving = leaving || want[r];
#endif
     if
     :: leaving ->
        d_step {
          assert(G[c].stopped_at == 0 || G[c].stopped_at == 1+own); G[c].stopped_at = 1+own;
          assert(G[c].begun <= own);                             /* nobody has begun more */
        }
        break
     :: else
     fi;
     MAYABORT;
     i = 0;
     do :: i < USES -> use(); i++ :: else -> break od;
     i = 0
  :: break
  od;
#ifdef FORGET
  if :: leaving -> goto done :: else fi;
#endif
  MAYDIE;
  /* join */
#ifdef LATEREAD
  shown = shown | want[r];
#else
  d_step { hs = want[r]; shown = shown | hs }
#endif
  d_step {
#ifdef LATEREAD
    hs = want[r];
#endif
    B(r).total = own; hs = hs || leaving || agreed; B(r).stp = hs; B(r).st = JOINED; hs = 0; horizon = 0; at = NONE; leaving = 0; agreed = 0
  }
  u = own; f = 0;
  do
  :: f == W -> break
  :: f < W ->
     d_step { hp = POS(f); hs = ISJ(f) }
     if
     :: hs == JOINED -> if :: B(f).total > u -> av = 1 :: else -> av = 2 fi
     :: else -> if :: hp > u -> av = 1 :: else -> av = 0 fi
     fi;
     if
     :: av == 1 ->
        ask(u);
        MAYABORT;                                                /* the main hook fails */
        if :: HAS_OP(u) -> coll() :: else fi;
        MAYDIE;
        u++; B(r).pos = u
     :: av == 2 -> f++
     :: av == 0 ->
        if
        :: (POS(f) != hp || ISJ(f) != hs) -> skip
        :: POS(f) == hp && ISJ(f) == hs && ANY(BAD_BOARD) -> assert(!ANY(FINISHED)); G[c].finerr = 1; goto fails
        OR_DIES
        fi
     fi;
     d_step { hp = 0; hs = 0; av = 0; agreed = 0; at = NONE }
  od;
  f = 0; k = 0;
  do
  :: k == W -> break
  :: k < W ->
     if
     :: ISJ(k) && B(k).pos >= u -> k++
     :: !(ISJ(k) && B(k).pos >= u) && ANY(BAD_BOARD) -> assert(!ANY(FINISHED)); G[c].finerr = 1; goto fails
     OR_DIES
     fi
  od;
  k = 0;
  /* conclude */
  d_step {
    do :: k < W -> assert(ISJ(k) && B(k).pos == u); hs = hs | B(k).stp; k++ :: else -> break od; k = 0;
    assert(G[c].answer == 0 || G[c].answer == 1+hs);
    if :: G[c].answer == 0 && hs -> stops++ :: else fi;
    G[c].answer = 1+hs; G[c].finok = 1;
    assert(G[c].stopped_at == 0 || (hs && u == G[c].stopped_at-1));
    assert(stops <= reqs);                                       /* one request stops one context */
  }
  if :: hs && shown -> want[r] = 0 :: else fi;
  d_step { hs = 0; shown = 0; own = 0; u = 0; seq = 0; c++ }
  if :: c <= C -> goto ctx :: else fi;
done:
  atomic { fin[r] = 1; dead[r] = 1 }                             /* the process exits */
  goto over;
gives_up:
  k = 0;
  d_step { L[r].aborted = 1; if :: c <= C && !CAUGHT(r) -> G[c].finerr = 1 :: else fi }
  L[r].fate = FATE_FAILED;
  goto over;
fails:
  /* who gives up because another has aborted counts as aborted too */
  k = 0;
  d_step {
    do
    :: k < W -> if
                :: k != r && FAILED(k) && L[k].aborted -> L[r].aborted = 1
                :: k != r && dead[k] && L[k].fate == FATE_NONE && !CAUGHT(k) -> L[k].fate = FATE_LOST
                :: else
                fi; k++
    :: else -> break
    od; k = 0
  }
  d_step { if :: L[r].fate == FATE_NONE -> L[r].fate = FATE_FAILED :: else fi }
  goto over;
dies:
  dead[r] = 1;
over:
  k = 1;
  d_step {
#if ABORTS == 0
    do :: k <= C*MAXU -> assert(!(opok[k] && operr[k])); k++ :: else -> break od;
    k = 1;
#endif
    do :: k <= C -> assert(!(G[k].finok && G[k].finerr)); k++ :: else -> break od;
    k = 0
  }
}
active proctype calm() { deaths = DEATHS }         /* at some moment nobody dies any more: else "it could still die" would hide a hang */
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
