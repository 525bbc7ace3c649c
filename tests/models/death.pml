/* SPDX-License-Identifier: Apache-2.0 */
/* Death and abort: up to DEATHS ranks die before any shared write or inside any wait, up to ABORTS give up in the loop or in
 * a main hook. A rank is to blame only if it failed and its part, read after that, is not done.
 * Checked: every survivor ends; an operation, and finish, ends alike on all; success only with all joined and caught up; a rank
 * that has finished is never blamed.
 * -DW= ranks  -DC= contexts  -DMAXIN= inputs  -DDEATHS=  -DABORTS=  -DR= entries of the ring
 * -DNOCOLL     uses without operations         -DNOPOST  no post hook
 * -DASYNC      the abort comes from another thread at any moment: outcomes may differ, wrong results may not come
 * -DNOREREAD   wrong: reads the part before the failure, not after it
 * -DANYDEAD    wrong: any failed rank fails every wait that is not done yet
 * -DNOMARK     wrong: who returns an error leaves no mark
 * -DEARLY      wrong: leaves finish at "all joined" */
#include "words.h"
#ifndef W
#define W 3
#endif
#ifndef MAXIN
#define MAXIN 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef R
#define R 2
#endif
#ifndef C
#define C 1
#endif
#define NOBODY 9
typedef Bank { byte tag; byte st; byte pos; byte total }
typedef Line { Bank b[BANKS]; byte fate }      /* fate: failed is the own mark, also after an abort; lost is written by the first who notices */
Line L[W];
byte arr[W]; typedef Slot { bit act[SLOTS] } Slot S[W];
bit dead[W];                     /* the pidfd has fired */
byte deaths, aborts;
/* ghosts */
bit fin[W];                      /* returned success from finish */
#define OPS (C*(MAXIN+1)+1)
typedef Ctx { byte n_of[MAXIN+1]; bit finok; bit finerr }
Ctx G[C+1];
bit opok[OPS+1], operr[OPS+1];

#ifdef NOMARK
#define FAILED(k) (dead[k] || L[k].fate == FATE_LOST)
#else
#define FAILED(k) (dead[k] || L[k].fate != FATE_NONE)
#endif
#define B(k) L[k].b[c&1]
#define IN(k) (B(k).tag == c)
#define ISJ(k) (IN(k) && B(k).st == JOINED)
#define USES(k) (IN(k) -> (B(k).st == JOINED -> B(k).total : B(k).pos) : 0)
#define M2(a,b) ((a) > (b) -> (a) : (b))
#if W==2
#define MAXUSES M2(USES(0),USES(1))
#define BOARDBAD(k) (FAILED(k) && (!ISJ(k) || B(k).pos < MAXUSES))
#define ANYBOARDBAD (BOARDBAD(0) || BOARDBAD(1))
#define ANYBADOP ((FAILED(0) && arr[0] < seq) || (FAILED(1) && arr[1] < seq))
#define ANYFAILED (FAILED(0) || FAILED(1))
#else
#define MAXUSES M2(USES(0),M2(USES(1),USES(2)))
#define BOARDBAD(k) (FAILED(k) && (!ISJ(k) || B(k).pos < MAXUSES))
#define ANYBOARDBAD (BOARDBAD(0) || BOARDBAD(1) || BOARDBAD(2))
#define ANYBADOP ((FAILED(0) && arr[0] < seq) || (FAILED(1) && arr[1] < seq) || (FAILED(2) && arr[2] < seq))
#define ANYFAILED (FAILED(0) || FAILED(1) || FAILED(2))
#endif
#ifdef EARLY
#undef BOARDBAD
#define BOARDBAD(k) (FAILED(k) && !ISJ(k))
#endif

#define MAYDIE  if :: atomic { deaths < DEATHS -> deaths++ } goto dies :: 1 fi
#define MAYABORT  if :: atomic { aborts < ABORTS -> aborts++ } goto aborts_ :: 1 fi
#define AND_SEE   /* in a wait: die, or the other thread aborted me */ \
      :: atomic { deaths < DEATHS -> deaths++ } goto dies \
      :: L[r].fate == FATE_FAILED -> goto aborts_

/* the part of rank k is arr[k] >= seq */
inline coll(ac) {
  MAYDIE;
  d_step { seq = arr[r]+1; S[r].act[seq&1] = ac; }
  arr[r] = seq;
  k = 0;
  do
  :: k == W -> break
  :: k < W ->
#ifdef NOREREAD
     a = (arr[k] >= seq);
     d = FAILED(k);
#else
     d = FAILED(k);
     a = (arr[k] >= seq);
#endif
     if
     :: a -> k++
     :: !a && d -> blame = k; operr[seq] = 1; goto fails
     :: !a && !d ->
        if
        :: arr[k] >= seq || FAILED(k) -> skip
#ifdef ANYDEAD
        :: ANYFAILED -> operr[seq] = 1; goto fails
#else
        :: ANYBADOP -> operr[seq] = 1; goto fails
#endif
        AND_SEE
        fi
     fi; a = 0; d = 0;
  od;
  k = 0;
  d_step { n = 0;
    do :: k < W -> assert(arr[k] <= seq+1); n = n + S[k].act[seq&1]; k++ :: else -> break od;
    opok[seq] = 1; k = 0; a = 0; d = 0 }
}
inline see_n(u) { d_step { assert(n >= 1 && (G[c].n_of[u] == 0 || G[c].n_of[u] == n)); G[c].n_of[u] = n; n = 0 } }

#define CHANGED (IN(f) && (B(f).pos != hp || B(f).st != hs))
proctype rank(byte r) {
  byte c = 1, own, u, f, k, seq, n, hp, av, hs, blame = NOBODY; bit a, d;
ctx:
  MAYDIE;
  d_step { B(r).pos = 0; B(r).st = RUN; B(r).tag = c }
  do
  :: own < MAXIN ->
     MAYABORT;
#ifdef NOCOLL
     k = 0;                                        /* ring rule */
     do
     :: k == W -> break
     :: k < W -> if
        :: k == r || own < R || (IN(k) && B(k).pos > own-R) -> k++
        :: FAILED(k) && k != r && own >= R && !(IN(k) && B(k).pos > own-R) -> blame = k; goto fails
        AND_SEE
        fi
     od; k = 0;
#endif
     MAYDIE;
     d_step { own++; B(r).pos = own }
#ifndef NOCOLL
     coll(1); see_n(own-1)
#endif
  :: break
  od;
  MAYDIE;
  B(r).total = own;
  B(r).st = JOINED;
  u = own; f = 0;
  do
  :: f == W -> break
  :: f < W ->
     d_step { if :: IN(f) -> hp = B(f).pos; hs = B(f).st :: else -> hp = 0; hs = RUN fi }
     if
     :: hs == JOINED -> if :: B(f).total > u -> av = 1 :: else -> av = 2 fi
     :: else -> if :: hp > u -> av = 1 :: else -> av = 0 fi
     fi;
     if
     :: av == 1 ->
        MAYABORT;                                  /* main hook fails */
#ifndef NOCOLL
        coll(0); see_n(u);
#endif
        MAYDIE;
        u++; B(r).pos = u
     :: av == 2 -> f++
     :: av == 0 ->
        if
        :: CHANGED -> skip
        :: ANYBOARDBAD && !CHANGED -> G[c].finerr = 1; goto fails
        AND_SEE
        fi
     fi;
     d_step { hp = 0; hs = 0; av = 0 }
  od;
  k = 0;
  do
  :: k == W -> break
  :: k < W ->
#ifdef EARLY
#define PART(k) ISJ(k)
#else
#define PART(k) (ISJ(k) && B(k).pos >= u)
#endif
#ifdef NOREREAD
     a = PART(k); d = FAILED(k);
#else
     d = FAILED(k); a = PART(k);
#endif
     if
     :: a -> k++
     :: !a && d -> blame = k; G[c].finerr = 1; goto fails
     :: !a && !d ->
        if
        :: PART(k) || FAILED(k) -> skip
        :: ANYBOARDBAD -> G[c].finerr = 1; goto fails
        AND_SEE
        fi
     fi; a = 0; d = 0
  od;
#ifndef NOPOST
  coll(own == u);
  assert(n >= 1);
#endif
  /* success */
  k = 0;
  d_step { do :: k < W -> assert(B(k).st == JOINED && B(k).tag == c);
#ifndef EARLY
     assert(B(k).pos == u);
#endif
     k++ :: else -> break od; k = 0; }
  G[c].finok = 1;
  if
  :: c < C -> d_step { c++; own = 0; u = 0; f = 0; seq = 0; n = 0 } goto ctx
  :: else
  fi;
  atomic { if :: L[r].fate == FATE_FAILED -> goto aborts_ :: else -> fin[r] = 1; dead[r] = 1 fi }   /* own mark is looked at last */                                     /* the process exits */
  goto over;
aborts_:
  L[r].fate = FATE_FAILED; 
  if :: !ISJ(r) || B(r).pos < MAXUSES -> G[c].finerr = 1 :: else fi;
  goto over;
fails:
  if
  :: blame != NOBODY ->
     assert(!fin[blame]);                          /* a rank that finished is never reported lost */
     if :: dead[blame] && L[blame].fate == FATE_NONE -> L[blame].fate = FATE_LOST :: else fi
  :: else
  fi;
#ifndef NOMARK
  d_step { if :: L[r].fate == FATE_NONE -> L[r].fate = FATE_FAILED :: else fi }
#endif
  goto over;
dies:
  dead[r] = 1;
over:
#ifndef ASYNC
  k = 1;
  d_step {                                          /* every operation, and finish, ends alike on all survivors */
    do :: k <= OPS -> assert(!(opok[k] && operr[k])); k++ :: else -> break od; k = 0;
#if defined(NOCOLL) || defined(NOPOST)
    assert(!(G[1].finok && G[1].finerr)); assert(!(G[C].finok && G[C].finerr));
#endif
  }
#endif
  skip
}
#ifdef ASYNC
active proctype other_thread() {
  if :: L[0].fate == FATE_NONE -> L[0].fate = FATE_FAILED :: 1 -> skip fi
}
#endif
active proctype calm() { deaths = DEATHS }         /* at some moment nobody dies any more: else "it could still die" would hide a hang */
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
