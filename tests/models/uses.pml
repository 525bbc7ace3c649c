/* SPDX-License-Identifier: Apache-2.0 */
/* Shadowing by uses: joinables A and B, one context; a round is A, AB, ABB or nothing, the same for all ranks that run it.
 * Checked: a joined rank replays exactly the uses from its own total to the largest, in order, from the right entries; a full
 * ring does not hang.
 * -DW= ranks  -DROUNDS= of a rank at most  -DR= entries of the ring  -DACOLL= -DBCOLL= 1: a use of A, of B has a collective
 * -DTRACE         tells its steps, for replay.cpp
 * -DEARLYPOS      publishes a position before the hook has run: the ring holds all the same
 * -DLOWEST_ACTIVE wrong: looks only at the lowest rank that has not joined
 * -DRING_JOINED   wrong: the ring is full only against joined ranks
 * -DNORING        wrong: no waiting when the ring is full
 * -DPUBLATE       wrong: the entry is written after the position */
#include "words.h"
#ifdef TRACE
#define SAY(what, a, b) printf("@%e %d %d %d\n", what, r, a, b)
mtype { notify, join, shadow, leave }
#else
#define SAY(what, a, b) skip
#endif
#ifndef W
#define W 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef R
#define R 2
#endif
#ifndef ACOLL
#define ACOLL 1
#endif
#ifndef BCOLL
#define BCOLL 0
#endif
#define MAXU (3*ROUNDS)

typedef Line { bit st; byte pos; byte total; byte ring[R] }     /* (st,pos) one word; ring entry: 1+use*4+joinable, of which only the joinable is real */
Line L[W];
byte arr[W];
byte fp[W];
/* ghosts */
byte prog[ROUNDS];         /* 0 not drawn, 1 A, 2 AB, 3 ABB, 4 nothing */
byte pat[MAXU];            /* the common sequence of uses: 0 none yet, 1 A, 2 B */
byte tot[W];               /* uses of each rank's own rounds */
byte maxu;
byte leavers;

inline coll(fpv) {
  d_step { seq = arr[r]+1; fp[r] = fpv; arr[r] = seq; }
  k = 0;
  do
  :: k < W -> d_step { (arr[k] >= seq) -> if :: arr[k] == seq -> assert(fp[k] == fpv) :: else fi; k++ }
  :: else -> break
  od;
  k = 0;
}
inline hook(j, u) {
  if
  :: (j == 1 && ACOLL) || (j == 2 && BCOLL) -> coll(u*4+j)
  :: else -> skip
  fi
}
inline use(j) {
#ifndef NORING
  /* ring full: wait until the slot's old entry (use own-R) has been passed by every other rank */
  k = 0;
  do
  :: k < W ->
#ifdef RING_JOINED
     (k == r || own < R || L[k].st == RUN || L[k].pos > own-R);
#else
     (k == r || own < R || L[k].pos > own-R);
#endif
     k++
  :: else -> break
  od;
#endif
  k = 0;
  d_step { if :: pat[own] == 0 -> pat[own] = j :: else -> assert(pat[own] == j) fi; }
#ifdef PUBLATE
  d_step { L[r].pos = own+1; if :: own+1 > maxu -> maxu = own+1 :: else fi }
  L[r].ring[own % R] = 1+own*4+j;
#else
  L[r].ring[own % R] = 1+own*4+j;
  d_step { L[r].pos = own+1; if :: own+1 > maxu -> maxu = own+1 :: else fi; SAY(notify, j, own) }
#endif
  hook(j, own);
  own++;
}

proctype rank(byte r) {
  byte own, i, u, f, k, seq, hp, e, av, p; bit hs;
#ifdef TRACE
  byte n;
  select(n : 0 .. ROUNDS);       /* a choice at each round would make nearly all of them short */
#define MORE (i < n)
#else
#define MORE 1
#endif
  do
  :: i < ROUNDS && MORE ->
     atomic {
       if
       :: prog[i] == 0 -> if :: prog[i] = 1 :: prog[i] = 2 :: prog[i] = 3 :: prog[i] = 4 fi
       :: else
       fi; p = prog[i];
     }
     if :: p != 4 -> use(1) :: else fi;
     if :: p == 2 || p == 3 -> use(2) :: else fi;
     if :: p == 3 -> use(2) :: else fi;
     i++
#ifdef TRACE
  :: i >= n -> break
#else
  :: break
#endif
  od;
  p = 0; i = 0;
  L[r].total = own;
  tot[r] = own;
  d_step { L[r].st = JOINED; SAY(join, own, 0) }
  u = own; f = 0;
  do
  :: f == W -> break
  :: f < W ->
     d_step { hp = L[f].pos; hs = L[f].st; }
#ifdef LOWEST_ACTIVE
     if
     :: hs == JOINED -> av = 2
     :: else -> if :: hp > u -> av = 1 :: else -> av = 0 fi
     fi;
#else
     if
     :: hs == JOINED -> if :: L[f].total > u -> av = 1 :: else -> av = 2 fi
     :: else -> if :: hp > u -> av = 1 :: else -> av = 0 fi
     fi;
#endif
     if
     :: av == 1 ->
        e = L[f].ring[u % R];
        assert(e != 0 && (e-1)/4 == u && (e-1)%4 == pat[u]);       /* never another use's entry */
        e = (e-1)%4;
#ifdef EARLYPOS
        L[r].pos = u+1;
        hook(e, u);
#else
        hook(e, u);
        d_step { L[r].pos = u+1; SAY(shadow, e, u) }
#endif
        u++; e = 0
     :: av == 2 -> f++
     :: av == 0 -> (L[f].pos != hp || L[f].st != hs)
     fi;
     d_step { hp = 0; hs = 0; av = 0 }
  od;
  /* leave: everybody joined and caught up */
  k = 0;
  do
  :: k < W -> (L[k].st == JOINED && L[k].pos >= u); k++
  :: else -> break
  od;
  k = 0;
  assert(u == maxu);                 /* every use replayed exactly once: from own total to the largest total */
  d_step {
    k = 0; hp = 0;
    do :: k < W -> if :: tot[k] > hp -> hp = tot[k] :: else fi; k++ :: else -> break od;
    assert(hp == u); hp = 0; k = 0;
  }
  d_step { leavers++; SAY(leave, u, 0) }
}
init { atomic { byte i = 0; do :: i < W -> run rank(i); i++ :: else -> break od; i = 0 } }
