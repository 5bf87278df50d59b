// Builds the text of CUDA kernels for the host: blocks one after the other, the threads of a block in turns, each up to its next
// barrier. A thread is a context of its own, so a barrier may stand inside of loops.
#pragma once
#include <functional>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

static ucontext_t turns;
static std::vector<ucontext_t> threads;
static std::vector<char> finished;
static std::function<void()> work;

static void start() { work(); finished[threadIdx.x] = 1; }
static void __syncthreads() { swapcontext(&threads[threadIdx.x], &turns); }

static void launch(unsigned blocks, unsigned count, std::function<void()> kernel) {
    static std::vector<std::vector<char>> stacks;
    work = kernel, gridDim = {blocks, 1, 1}, blockDim = {count, 1, 1};
    threads.resize(count), stacks.resize(count);
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = {b, 0, 0};
        finished.assign(count, 0);
        for (unsigned t = 0; t < count; t++) {
            stacks[t].resize(1 << 16);
            getcontext(&threads[t]);
            threads[t].uc_stack.ss_sp = stacks[t].data();
            threads[t].uc_stack.ss_size = stacks[t].size();
            threads[t].uc_link = &turns;
            makecontext(&threads[t], start, 0);
        }
        for (bool again = true; again;) {
            again = false;
            for (unsigned t = 0; t < count; t++) {
                if (finished[t]) continue;
                threadIdx = {t, 0, 0};
                swapcontext(&turns, &threads[t]);
                again |= !finished[t];
            }
        }
    }
}
