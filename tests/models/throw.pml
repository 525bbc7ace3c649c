/* SPDX-License-Identifier: Apache-2.0 */
/* Throw mode: notify waits until the number of ranks that have this use is known; fewer than all: every rank leaves there.
 * Checked: one outcome of a context on all ranks; nobody has entered an operation of the use that is missing; with deaths every
 * survivor ends, and outcomes agree.
 * -DW= ranks  -DC= contexts  -DMAXIN= inputs  -DDEATHS= ranks that die, at any moment  -DPOSTC  a post hook with an operation
 * -DBEYOND   wrong: a rank without inputs leaves as soon as one rank has the use that it lacks
 * -DNOWAIT   wrong: notify decides from what it sees at once */
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
#ifndef DEATHS
#define DEATHS 0
#endif
#define BK(c) ((c)&1)
typedef Bank { byte tag; bit st; byte pos }
typedef Line { Bank b[BANKS] }
Line L[W];
byte arr[W]; typedef Slot { byte fp[SLOTS] } Slot S[W];
bit dead[W]; bit mark[W]; byte deaths;
bit err[C+1];                 /* ghost: somebody returned an error from this context */
bit opok[C*(MAXIN+1)+2], operr[C*(MAXIN+1)+2];
byte outcome[C+1];            /* ghost: 1 normal, 2+u exhausted in round u */
byte entered[C+1];            /* ghost: 1 + last use whose operation somebody entered */

#define FAILED(k) (dead[k] || mark[k])
#if W==2
#define BADOP ((FAILED(0) && arr[0] < seq) || (FAILED(1) && arr[1] < seq))
#define BADN(u) ((FAILED(0) && !KNOWN(0,u)) || (FAILED(1) && !KNOWN(1,u)))
#else
#define BADOP ((FAILED(0) && arr[0] < seq) || (FAILED(1) && arr[1] < seq) || (FAILED(2) && arr[2] < seq))
#define BADN(u) ((FAILED(0) && !KNOWN(0,u)) || (FAILED(1) && !KNOWN(1,u)) || (FAILED(2) && !KNOWN(2,u)))
#endif
#if DEATHS == 0
#define MAYDIE skip
#else
#define MAYDIE if :: atomic { deaths < DEATHS -> deaths++ } goto dies :: 1 fi
#endif
inline coll(fpv) {
  MAYDIE;
  d_step { seq = arr[r]+1; S[r].fp[seq&1] = fpv; arr[r] = seq; }
  k = 0;
  do
  :: k < W -> if :: arr[k] >= seq -> k++ :: BADOP -> operr[seq] = 1; goto fails :: atomic { deaths < DEATHS -> deaths++ } goto dies fi
  :: else -> break
  od;
  opok[seq] = 1;
  k = 0;
  do :: k < W -> d_step { assert(arr[k] <= seq+1); assert(S[k].fp[seq&1] == fpv); k++ } :: else -> break od; k = 0;
}
#define MINE(k) (L[k].b[BK(c)].tag == c)
#define KNOWN(k,u) (MINE(k) && (L[k].b[BK(c)].pos > u || L[k].b[BK(c)].st == JOINED))
inline count(u) {              /* n = ranks that started use u; one rank per step */
  k = 0; n = 0;
  do
  :: k < W ->
#ifndef NOWAIT
     if :: KNOWN(k,u) -> skip :: BADN(u) -> err[c] = 1; goto fails :: atomic { deaths < DEATHS -> deaths++ } goto dies fi;
#endif
     d_step { assert(L[k].b[BK(c)].tag <= c); if :: MINE(k) && L[k].b[BK(c)].pos > u -> n++ :: else fi; k++ }
  :: else -> break
  od; k = 0;
}
inline done_as(v) { d_step { assert(outcome[c] == 0 || outcome[c] == v); outcome[c] = v } }

proctype rank(byte r) {
  byte c = 1, own, k, n, seq; bit thrown;
ctx:
  MAYDIE;
  if :: c > C -> goto done :: else fi;
  d_step { L[r].b[BK(c)].pos = 0; L[r].b[BK(c)].st = RUN; L[r].b[BK(c)].tag = c; own = 0; thrown = 0 }
  do
  :: own < MAXIN ->
     MAYDIE;
     L[r].b[BK(c)].pos = own+1;
     count(own);
     if
     :: n < W -> thrown = 1; break
     :: else -> n = 0;
        d_step { assert(outcome[c] == 0); if :: entered[c] < own+1 -> entered[c] = own+1 :: else fi }
        coll(c*8+own); own++
     fi
  :: break
  od;
  if
  :: thrown -> n = 0; assert(entered[c] <= own); done_as(2+own)
  :: else ->
     MAYDIE;
     L[r].b[BK(c)].st = JOINED;
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
     :: n > 0 -> n = 0; assert(entered[c] <= own); done_as(2+own)
     :: else -> done_as(1); 
#ifdef POSTC
        coll(c*8+7)
#endif
     fi
  fi;
  d_step { seq = 0; own = 0; thrown = 0; n = 0; c++ }
  goto ctx;
done: skip;
dies:
#if DEATHS > 0
  dead[r] = 1;             /* exits, one way or the other */
#endif
  goto over;
fails: mark[r] = 1;
over: k = 1;
#if DEATHS > 0
  do :: k <= C*(MAXIN+1)+1 -> assert(!(opok[k] && operr[k])); k++ :: else -> break od;
  k = 1;
  do :: k <= C -> assert(!(outcome[k] && err[k])); k++ :: else -> break od;
#endif
  skip
}
#if DEATHS > 0
active proctype calm() { deaths = DEATHS }
#endif
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
