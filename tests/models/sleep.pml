/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking on a machine with store buffers (one entry each; locked instructions wait until it is empty): the litmus
 * test of os/event_count.hpp. The publisher stores the word (release), adds 1 to seq (locked), loads sleepers, wakes if there
 * are any. The sleeper loads seq, tests, adds 1 to sleepers, compares seq and tests again, sleeps while seq is what it was.
 * Checked: nobody sleeps for ever.
 * -DN= publications  -DSL2  two sleepers  -DALARM  a third process announces a failure
 * -DXCHG      the futex is the word itself, published by a locked exchange: right for one writer and without alarms
 * -DPLAIN     wrong: like XCHG with a plain store
 * -DNOTEST2   wrong: no second test after sleepers was raised */
#include "words.h"
#ifndef N
#define N 2
#endif
#define A_WORD 0
#define A_SEQ 1
#define A_SL 2
#define A_ALARM 3
byte mem[4];
byte bufa[5], bufv[5];              /* store buffer of process i: address+1 or 0 */
byte nasleep;                       /* bit per sleeper */
byte got[5];

#define STORE(p,a,v)  atomic { (bufa[p] == 0) -> bufa[p] = (a)+1; bufv[p] = v }
#define LOAD(p,a,x)   d_step { if :: bufa[p] == (a)+1 -> x = bufv[p] :: else -> x = mem[a] fi }
#define LADD(p,a,v)   atomic { (bufa[p] == 0) -> mem[a] = mem[a] + v }
#define LXCHG(p,a,v)  atomic { (bufa[p] == 0) -> mem[a] = v }

active proctype flush() {            /* the memory system */
end: do
  :: d_step { bufa[0] != 0 -> mem[bufa[0]-1] = bufv[0]; bufa[0] = 0; bufv[0] = 0 }
  :: d_step { bufa[1] != 0 -> mem[bufa[1]-1] = bufv[1]; bufa[1] = 0; bufv[1] = 0 }
  :: d_step { bufa[2] != 0 -> mem[bufa[2]-1] = bufv[2]; bufa[2] = 0; bufv[2] = 0 }
  :: d_step { bufa[3] != 0 -> mem[bufa[3]-1] = bufv[3]; bufa[3] = 0; bufv[3] = 0 }
  od
}
inline wakeall(p) {
  LOAD(p, A_SL, x);
  if :: x != 0 -> (bufa[p] == 0); nasleep = 0      /* a system call: the buffer is drained */
     :: else
  fi
}
active proctype publisher() {
  byte i = 1, x;
  do
  :: i <= N ->
#ifdef PLAIN
     STORE(0, A_WORD, i);
#else
#ifdef XCHG
     LXCHG(0, A_WORD, i);
#else
     STORE(0, A_WORD, i);
     LADD(0, A_SEQ, 1);
#endif
#endif
     wakeall(0); i++
  :: else -> break
  od
}
#ifdef ALARM
active proctype failing() {
  byte x;
  STORE(3, A_ALARM, 1);
#if !defined(XCHG) && !defined(PLAIN)
  LADD(3, A_SEQ, 1);
#endif
  wakeall(3);
}
#define STOPNOW(a) (a)
#define LAST (N+1)      /* the last value never comes: only the alarm ends the wait */
#else
#define STOPNOW(a) 0
#define LAST N
#endif
#if defined(XCHG) || defined(PLAIN)
#define FUTEX A_WORD
#else
#define FUTEX A_SEQ
#endif
proctype sleeper(byte me) {          /* waits for 1, then 2, ... N */
  byte want = 1, s, w, s2, al;
  do
  :: want > LAST -> break
  :: want <= LAST ->
     LOAD(me, FUTEX, s);
     LOAD(me, A_WORD, w);
     LOAD(me, A_ALARM, al);
     if
     :: w >= want -> want++
     :: w < want && STOPNOW(al) -> break
     :: w < want && !STOPNOW(al) ->
        LADD(me, A_SL, 1);
#ifdef NOTEST2
        LOAD(me, FUTEX, s);
        if
        :: 1 ->
#else
        LOAD(me, FUTEX, s2); LOAD(me, A_WORD, w); LOAD(me, A_ALARM, al);
        if
        :: s2 != s || w >= want || STOPNOW(al) -> skip
        :: else ->
#endif
           atomic { (bufa[me] == 0) -> if :: mem[FUTEX] == s -> nasleep = nasleep | (1<<me) :: else fi };   /* kernel compares under its lock */
           (!(nasleep & (1<<me)))
        fi;
        LADD(me, A_SL, 255);
     fi;
     d_step { s = 0; w = 0; s2 = 0; al = 0 }
  od
}
init { atomic { run sleeper(1);
#ifdef SL2
  run sleeper(2);
#endif
} }
