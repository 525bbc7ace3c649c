/* SPDX-License-Identifier: Apache-2.0 */
/* The board: contexts follow each other on one group; every use is one collective that all ranks enter, some as shadows.
 * Checked: no hang; same operation and number of contributors on all ranks, in slots and on the board; last joiners and
 * authoritative rank as a sequential look at the totals gives them; no word of another context is used.
 * -DW= ranks  -DC= contexts  -DMAXIN= inputs of a rank and context at most
 * -DNOPOST    no post hook: the next context may start sooner
 * -DASK       notify waits until n is known from the board, and must get what the slots tell
 * -DASKPOS    with ASK: counts a joined rank by its position, not its total (harmless only where each use has an operation)
 * -DEARLY     leaves at "all joined" without "all caught up" (harmless with operations; death.pml shows the harm)
 * -DNOTAG     wrong: words do not carry the context's number
 * -DONEBANK   wrong: one bank instead of two */
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
#ifdef ONEBANK
#define BK(c) 0
#define NB 1
#else
#define BK(c) ((c)&1)
#define NB BANKS
#endif
#ifdef NOTAG
#define TAGOK(t,c) 1
#else
#define TAGOK(t,c) ((t)==(c))
#endif
#define POST 7

typedef Bank { byte tag; bit st; byte pos; byte total }   /* (tag,st,pos) is one word; total another */
typedef Line { Bank b[NB] }
Line L[W];
byte arr[W];                                   /* operations entered */
typedef Slot { byte fp[SLOTS]; bit act[SLOTS] }        /* double-buffered slot: fingerprint, active or shadow */
Slot S[W];

/* ghosts */
typedef Ctx { byte n[3]; byte tot[3]; byte fin }    /* n: 1 + count as divided by */
Ctx G[4];

inline coll(fpv, a) {                          /* enter, wait for all, read all */
  d_step { seq = arr[r]+1; S[r].fp[seq&1] = fpv; S[r].act[seq&1] = a; }
  arr[r] = seq;
  k = 0; n = 0;
  do
  :: k < W -> (arr[k] >= seq); k++
  :: else -> break
  od;
  k = 0;
  do
  :: k < W -> d_step { assert(arr[k] <= seq+1); assert(S[k].fp[seq&1] == fpv); n = n + S[k].act[seq&1]; k++ }
  :: else -> break
  od; k = 0;
}

proctype rank(byte r) {
  byte asked, c = 1, own, u, f, k, n, seq, hp, ht, mx, au, av; bit hs;
ctx:
  if :: c > C -> goto done :: else fi;
  d_step { L[r].b[BK(c)].pos = 0; L[r].b[BK(c)].st = RUN; L[r].b[BK(c)].tag = c; own = 0; }      /* start: one store */
  do
  :: own < MAXIN ->
       d_step { own++; L[r].b[BK(c)].pos = own; }                        /* notify: publish */
#ifdef ASK
       k = 0; n = 0;
       do
       :: k < W ->
            (TAGOK(L[k].b[BK(c)].tag,c) && (L[k].b[BK(c)].pos >= own || L[k].b[BK(c)].st == JOINED));
            d_step { hp = L[k].b[BK(c)].pos; hs = L[k].b[BK(c)].st; }      /* one load */
#ifdef ASKPOS
            if :: hp >= own -> n++ :: else -> skip fi;
#else
            if :: hs == RUN -> n++ :: hs == JOINED -> if :: L[k].b[BK(c)].total >= own -> n++ :: else fi fi;
#endif
            k++
       :: else -> break
       od;
       asked = n; hp = 0; hs = 0; n = 0;
#endif
       coll(c*8+own-1, 1);
#ifdef ASK
       assert(asked == n); asked = 0;
#endif
       d_step { if :: G[c].n[own-1] == 0 -> G[c].n[own-1] = n+1 :: else -> assert(G[c].n[own-1] == n+1) fi; n = 0; }
  :: break
  od;
  k = 0;
  d_step { L[r].b[BK(c)].total = own; G[c].tot[r] = own; }
  L[r].b[BK(c)].st = JOINED;
  u = own; f = 0;
  do
  :: f == W -> break
  :: f < W ->
       d_step { hp = L[f].b[BK(c)].pos; hs = L[f].b[BK(c)].st; ht = L[f].b[BK(c)].tag; }   /* one load */
       if
       :: !TAGOK(ht,c) || hs == RUN ->
            if :: TAGOK(ht,c) && hp > u -> av = 1 :: else -> av = 0 fi;
       :: else -> if :: L[f].b[BK(c)].total > u -> av = 1 :: else -> av = 2 fi
       fi;
       if
       :: av == 1 ->
            coll(c*8+u, 0);
            d_step { if :: G[c].n[u] == 0 -> G[c].n[u] = n+1 :: else -> assert(G[c].n[u] == n+1) fi; n = 0; }
            u++;
            L[r].b[BK(c)].pos = u
       :: av == 2 -> f++
       :: av == 0 -> (L[f].b[BK(c)].pos != hp || L[f].b[BK(c)].st != hs || L[f].b[BK(c)].tag != ht)   /* sleep on one word */
       fi;
       d_step { hp = 0; hs = 0; ht = 0; av = 0; }
  od;
  k = 0;
#ifndef EARLY
  do
  :: k < W -> (TAGOK(L[k].b[BK(c)].tag,c) && L[k].b[BK(c)].st == JOINED && L[k].b[BK(c)].pos >= u); k++
  :: else -> break
  od;
#endif
  k = 0; mx = 0; au = 0;
  do
  :: k < W -> d_step { if :: L[k].b[BK(c)].total >= mx -> mx = L[k].b[BK(c)].total; au = k :: else fi; k++ }
  :: else -> break
  od;
  k = 0;
  /* compare with the sequential definition */
  d_step {
    assert(mx == u);
    k = 0; n = 0; hp = 0;
    do :: k < W -> if :: G[c].tot[k] >= hp -> hp = G[c].tot[k]; ht = k :: else fi; k++ :: else -> break od;
    assert(hp == mx); assert(ht == au); assert(L[r].b[BK(c)].tag == c);
    seq = 0;
    do
    :: seq < mx -> k = 0; n = 0;
         do :: k < W -> if :: G[c].tot[k] > seq -> n++ :: else fi; k++ :: else -> break od;
         assert(G[c].n[seq] == n+1); seq++
    :: else -> break
    od;
    hp = 0; ht = 0; k = 0; n = 0; seq = 0;
  }
#ifndef NOPOST
  coll(c*8+POST, (own == mx));
  d_step { assert(n >= 1); n = 0; }
#endif
  d_step { seq = 0; mx = 0; u = 0; f = 0; own = 0; au = 0; k = 0; G[c].fin++; c++; }
  goto ctx;
done: skip
}

init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
