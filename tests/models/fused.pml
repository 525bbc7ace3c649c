/* SPDX-License-Identifier: Apache-2.0 */
/* The fused step of a sharded optimizer: publish (active or shadow), barrier A, the owner sums the active ranks' gradients and
 * writes all replicas, barrier B.
 * Checked: success only with a whole replica, summed over the published set; no gradient is read before it is complete, none
 * written while read; no memory is touched that was given back; B ends alike.
 * -DW= ranks  -DSTEPS=  -DDEATHS=  -DGIVEUPS= ranks that give up inside a wait
 * -DDETACH    a failing rank takes its memory out of the shared mapping instead of waiting for the others to keep quiet
 * -DNOLOOK    wrong: no look at the marks after A
 * -DNODRAIN   wrong: a failing rank returns at once
 * -DNOBARA    wrong: no barrier A
 * -DHALFOK    wrong: B ends well when the own part is done and nobody failed so far
 * -DSPLIT     the split form: the owner sums first, then norms are exchanged in a meeting N between A and B, with the same look at
 *             the marks after it, then the replicas are written
 * -DNOLOOKN   with SPLIT: no look after N. Harmless to memory: a rank that fails waits for all that are between A and B
 * -DNOBARN    wrong, with SPLIT: no meeting N: the norm is taken from what the others show at the moment
 * -DQUIETN    wrong, with SPLIT: a failing rank takes one that has arrived at N for one that touches nothing any more */
#include "words.h"
#ifndef W
#define W 2
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef GIVEUPS
#define GIVEUPS 1
#endif
typedef Rank { byte arrA; byte arrB; byte arrN; byte norm[SLOTS]; bit act[SLOTS]; byte fate; bit quiet; byte grad; bit reading; bit freed; bit detached; byte rep[W] }   /* rep[o] = 16*step + set summed */
Rank K[W];
bit dead[W]; byte deaths, giveups;
/* ghosts */
byte setof[STEPS+1];             /* 1+set of the step as published */
bit okB[STEPS+1], errB[STEPS+1];

#define FAILED(k) (dead[k] || K[k].fate != FATE_NONE)
#if W==2
#define BAD(f) ((FAILED(0) && K[0].f < s) || (FAILED(1) && K[1].f < s))
#else
#define BAD(f) ((FAILED(0) && K[0].f < s) || (FAILED(1) && K[1].f < s) || (FAILED(2) && K[2].f < s))
#endif
#define MAYDIE  if :: atomic { deaths < DEATHS -> deaths++ } goto dies :: 1 fi

#define AWAIT(f) \
  k = 0; \
  do \
  :: k == W -> break \
  :: k < W -> \
     if \
     :: K[k].f >= s -> k++ \
     :: K[k].f < s && BAD(f) -> goto fails \
     :: atomic { deaths < DEATHS -> deaths++ } goto dies \
     :: atomic { giveups < GIVEUPS -> giveups++ } goto fails \
     fi \
  od; k = 0

proctype rank(byte r) {
  byte s = 1, k, j, set, v; bit active_ = 1, half;
  do
  :: s <= STEPS ->
     /* forward and backward: reads parameters, writes the gradient */
     if :: active_ -> if :: 1 :: active_ = 0 fi :: else fi;      /* out of inputs from now on */
     if
     :: active_ -> K[r].reading = 1;
        d_step { k = 0; v = K[r].rep[0]/16; do :: k < W -> assert(K[r].rep[k]/16 == s-1); k++ :: else -> break od; k = 0; v = 0; }
        K[r].reading = 0; K[r].grad = s
     :: else
     fi;
     /* 0: publish */
     MAYDIE;
     K[r].act[s&1] = active_;
     K[r].arrA = s;
#ifndef NOBARA
     AWAIT(arrA);
#endif
#ifndef NOLOOK
     if :: BAD(arrB) -> goto fails :: else fi;                         /* marks are read after my arrival at A is visible */
#endif
     /* 1: sum and write; between A and B */
     set = 0; k = 0;
     do
     :: k < W ->
        if
        :: K[k].act[s&1] -> assert(K[k].grad == s); assert(!K[k].freed || K[k].detached || dead[r]); set = set | (1<<k)
        :: else
        fi; k++
     :: else -> break
     od;
     k = 0;
     d_step { if :: setof[s] == 0 -> setof[s] = 1+set :: else -> assert(setof[s] == 1+set) fi }
#ifdef SPLIT
     MAYDIE;
     K[r].norm[s&1] = s+r;                                              /* stands for the norm of the own part, of this step */
     K[r].arrN = s;
#ifndef NOBARN
     AWAIT(arrN);
#endif
#ifndef NOLOOKN
     if :: BAD(arrB) -> goto fails :: else fi;
#endif
     v = 0;
     do :: k < W -> v = v + K[k].norm[s&1]; k++ :: else -> break od;
     k = 0;
     d_step { assert(v == W*s + W*(W-1)/2); v = 0 }                     /* the same norm everywhere, all of it of this step */
#endif
     do
     :: k < W ->
        MAYDIE;
        if :: BAD(arrB) -> goto fails :: 1 fi;                      /* looks at the marks between pieces; may be late */
        d_step { assert(!K[k].reading); assert(!K[k].freed || K[k].detached); if :: !K[k].detached -> K[k].rep[r] = 16*s+set :: else fi; k++ }
     :: else -> break
     od;
     k = 0; set = 0;
     MAYDIE;
     K[r].arrB = s;
#ifdef HALFOK
     if :: !BAD(arrB) -> skip :: else -> goto fails fi;
#else
     AWAIT(arrB);
#endif
     /* success: the replica is whole */
     d_step {
       k = 0;
       do :: k < W -> assert(K[r].rep[k] == 16*s + setof[s] - 1); k++ :: else -> break od; k = 0;
       okB[s] = 1
     }
     s++
  :: else -> break
  od;
  dead[r] = 1;                                                       /* finished, exits */
  goto over;
fails:
  /* mark, then stop touching the peers' memory, then wait until they stop touching mine */
  K[r].fate = FATE_FAILED;
  if :: K[r].arrB < s -> errB[s] = 1 :: else fi;
#ifdef DETACH
  K[r].detached = 1;
#else
  K[r].quiet = 1;
#ifdef QUIETN
#define THROUGH_N(k) (K[k].arrN >= s)
#else
#define THROUGH_N(k) false
#endif
#ifndef NODRAIN
  k = 0;
  do
  :: k < W -> (k == r || THROUGH_N(k) || K[k].arrB >= s || K[k].quiet || dead[k] || K[k].arrA < s); k++
  :: else -> break
  od;
  k = 0;
#endif
#endif
  K[r].freed = 1;
  goto over;
dies:
  dead[r] = 1;
over:
  k = 1;
  do :: k <= STEPS -> assert(!(okB[k] && errB[k])); k++ :: else -> break od;
}
active proctype calm() { atomic { deaths = DEATHS; giveups = GIVEUPS } }
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
