/* SPDX-License-Identifier: Apache-2.0 */
/* The values that the models and the board of the library (src/comm/board.hpp, head.hpp, watch.hpp) have in common: the models
 * include this list, and tests/unit/join_words_test.cpp holds the library's enumerators against it. No C in here: spin reads it. */
#define RUN 0
#define JOINED 1
#define FATE_NONE 0
#define FATE_FAILED 1
#define FATE_LOST 2
#define FATE_LEFT 3
#define BANKS 2
#define SLOTS 2
#define NONE 255
