/* SPDX-License-Identifier: Apache-2.0 */
/* The agreed stop: a request may come to any rank at any time.
 * Checked: nobody runs a use beyond the stop, and finish answers the same on all ranks.
 * -DW= ranks  -DC= contexts  -DMAXIN= inputs  -DR= entries of the ring  -DREQ= requests
 * Requests ride in the slot of a use's operation, and are frozen into the head at the join. With
 * -DLAG     uses have no operations: the asker writes stop_at = its next use + R
 * -DLIVE    wrong: finish looks at live requests instead of the frozen ones
 * -DSHORT   wrong: stop_at is one use too early */
#include "words.h"
#ifndef W
#define W 3
#endif
#ifndef C
#define C 2
#endif
#ifndef MAXIN
#define MAXIN 2
#endif
#ifndef R
#define R 2
#endif
#ifndef REQ
#define REQ 1
#endif
#define BK(c) ((c)&1)
typedef Bank { byte tag; bit st; byte pos; byte total; bit stp; byte at }
typedef Line { Bank b[BANKS] }
Line L[W];
byte arr[W]; typedef Slot { byte fp[SLOTS]; bit stp[SLOTS] } Slot S[W];
bit want[W]; byte reqs;
/* ghosts */
byte stopuse[C+1];      /* uses that were run when the stop took effect */
byte tot[W]; 
byte answer[C+1];       /* 1 no, 2 yes */

active proctype signals() {
  byte i;
end: do
  :: reqs < REQ -> atomic { reqs++; if :: want[0] = 1 :: want[1] = 1 :: want[W-1] = 1 fi }
  od
}
inline coll(fpv) {
  d_step { seq = arr[r]+1; S[r].fp[seq&1] = fpv; S[r].stp[seq&1] = want[r]; }
  arr[r] = seq; k = 0; g = 0;
  do :: k < W -> (arr[k] >= seq); k++ :: else -> break od;
  k = 0;
  do :: k < W -> d_step { assert(arr[k] <= seq+1); assert(S[k].fp[seq&1] == fpv); g = g | S[k].stp[seq&1]; k++ } :: else -> break od;
  k = 0;
}
inline lead(v) {        /* the ring rule for use v: everybody has passed v-R */
  k = 0;
  do :: k < W -> (k == r || v < R || (L[k].b[BK(c)].tag == c && L[k].b[BK(c)].pos > v-R)); k++ :: else -> break od; k = 0;
}
inline ask(v) {
#ifdef SHORT
  if :: want[r] && L[r].b[BK(c)].at == NONE -> L[r].b[BK(c)].at = v+R-1 :: else fi
#else
  if :: want[r] && L[r].b[BK(c)].at == NONE -> L[r].b[BK(c)].at = v+R :: else fi
#endif
}
inline check(v) {       /* is somebody's stop_at <= v? one rank per step; another context's word does not count */
  k = 0; g = 0;
  do :: k < W -> d_step { if :: L[k].b[BK(c)].tag == c && L[k].b[BK(c)].at <= v -> g = 1 :: else fi; k++ } :: else -> break od; k = 0;
}
inline agree(v) { d_step { if :: g -> assert(stopuse[c] == 0 || stopuse[c] == v); stopuse[c] = v :: else -> assert(v == 0 || stopuse[c] != v) fi } }   /* v: number of uses run when leaving */

proctype rank(byte r) {
  byte c = 1, own, u, f, k, seq, hp, ht, mx, av; bit hs, g, stop;
ctx:
  if :: c > C -> goto done :: else fi;
  d_step { L[r].b[BK(c)].pos = 0; L[r].b[BK(c)].at = NONE; L[r].b[BK(c)].stp = 0; L[r].b[BK(c)].st = RUN; L[r].b[BK(c)].tag = c; own = 0; stop = 0 }
  do
  :: own < MAXIN && !stop ->
#ifdef LAG
       lead(own); check(own);
       agree(own);
       if :: g -> stop = 1; g = 0 :: else -> ask(own); L[r].b[BK(c)].pos = own+1; own++ fi
#else
       L[r].b[BK(c)].pos = own+1;
       coll(c*8+own);
       agree(own+1);
       stop = g; g = 0; own++
#endif
  :: break
  od;
  k = 0;
  d_step { L[r].b[BK(c)].total = own; tot[r] = own; L[r].b[BK(c)].stp = (want[r] | stop); L[r].b[BK(c)].st = JOINED; }   /* total first, then one word */
  u = own; f = 0;
  do
  :: f == W -> break
  :: f < W ->
       d_step { hp = L[f].b[BK(c)].pos; hs = L[f].b[BK(c)].st; ht = L[f].b[BK(c)].tag; }
       if
       :: ht != c || hs == RUN -> if :: ht == c && hp > u -> av = 1 :: else -> av = 0 fi;
       :: else -> if :: L[f].b[BK(c)].total > u -> av = 1 :: else -> av = 2 fi
       fi;
       if
       :: av == 1 ->
#ifdef LAG
            ask(u); 
#else
            coll(c*8+u); agree(u+1); g = 0;
#endif
            u++; L[r].b[BK(c)].pos = u
       :: av == 2 -> f++
       :: av == 0 -> (L[f].b[BK(c)].pos != hp || L[f].b[BK(c)].st != hs || L[f].b[BK(c)].tag != ht)
       fi;
       d_step { hp = 0; hs = 0; ht = 0; av = 0; }
  od;
  k = 0;
  do :: k < W -> (L[k].b[BK(c)].tag == c && L[k].b[BK(c)].st == JOINED && L[k].b[BK(c)].pos >= u); k++ :: else -> break od;
  k = 0; g = 0;
#ifdef LIVE
  do :: k < W -> g = g | want[k]; k++ :: else -> break od;
#else
  do :: k < W -> d_step { g = g | L[k].b[BK(c)].stp; k++ } :: else -> break od;
#endif
  k = 0;
  d_step {
    assert(answer[c] == 0 || answer[c] == 1+g); answer[c] = 1+g;
    if :: stopuse[c] != 0 -> assert(u <= stopuse[c]); assert(g == 1) :: else fi;     /* nobody went beyond the stop, and everyone knows */
    stop = g; g = 0; seq = 0; u = 0; f = 0; own = 0; c++;
    if :: !stop -> skip :: else fi
  }
  if :: !stop -> goto ctx :: else fi;
done: skip
}
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
