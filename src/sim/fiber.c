/* fiber.c - see fiber.h. On x86-64 a switch saves six registers (about 5 ns). On other machines it uses ucontext, which
 * is about 100 times slower. */
#include "sim/fiber.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLOW_AND_SAFE 1
#endif

#if defined(__x86_64__) && !defined(SLOW_AND_SAFE)

/* fli_fiber_jump(save_sp, load_sp) saves and loads only the callee-saved registers of the calling convention.
 * fli_fiber_begin calls the function in r13 with the argument in r12. */
__asm__(".text\n"
        ".p2align 4\n"
        ".type fli_fiber_jump, @function\n"
        "fli_fiber_jump:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fli_fiber_jump, .-fli_fiber_jump\n"
        ".type fli_fiber_begin, @function\n"
        "fli_fiber_begin:\n"
        "    movq %r12, %rdi\n"
        "    callq *%r13\n"
        "    ud2\n"
        ".size fli_fiber_begin, .-fli_fiber_begin\n");
void fli_fiber_jump(void **save_sp, void *load_sp);
void fli_fiber_begin(void);

void fli_fiber_reset(fli_fiber *fiber, void (*run)(void *arg), void *arg)
{
    /* Prepares the stack as if fli_fiber_jump() had been called at the start of fli_fiber_begin(): the registers that
     * fli_fiber_jump() pops, then its return address. */
    uintptr_t  top = ((uintptr_t)fiber->stack + fiber->size) & ~(uintptr_t)15;
    uintptr_t *sp = (uintptr_t *)top;
    *--sp = 0;
    *--sp = 0; /* two words, so that the stack is aligned to 16 bytes when fli_fiber_begin() calls `run` */
    *--sp = (uintptr_t)fli_fiber_begin;
    *--sp = 0;              /* initial value of rbp */
    *--sp = 0;              /* initial value of rbx */
    *--sp = (uintptr_t)arg; /* initial value of r12 */
    *--sp = (uintptr_t)run; /* initial value of r13 */
    *--sp = 0;              /* initial value of r14 */
    *--sp = 0;              /* initial value of r15 */
    fiber->sp = sp;
}

void fli_fiber_switch(fli_fiber *from, fli_fiber *to)
{
    fli_fiber_jump(&from->sp, to->sp);
}

#else

#include <stdlib.h>
#include <ucontext.h>

typedef struct context {
    ucontext_t posix;
    void (*run)(void *arg);
    void *arg;
} context;

static void begin_fiber(unsigned high, unsigned low)
{
    context *c = (context *)(((uintptr_t)high << 32) | (uintptr_t)low);
    c->run(c->arg);
    __builtin_trap();
}

void fli_fiber_reset(fli_fiber *fiber, void (*run)(void *arg), void *arg)
{
    context *c = fiber->sp != NULL ? fiber->sp : malloc(sizeof *c);
    FLI_ASSERT(c != NULL && getcontext(&c->posix) == 0);
    c->run = run;
    c->arg = arg;
    c->posix.uc_stack.ss_sp = fiber->stack;
    c->posix.uc_stack.ss_size = fiber->size;
    c->posix.uc_link = NULL;
    makecontext(&c->posix, (void (*)(void))begin_fiber, 2, (unsigned)((uintptr_t)c >> 32), (unsigned)(uintptr_t)c);
    fiber->sp = c;
}

void fli_fiber_switch(fli_fiber *from, fli_fiber *to)
{
    if (from->sp == NULL) from->sp = malloc(sizeof(context));
    FLI_ASSERT(from->sp != NULL && swapcontext(&((context *)from->sp)->posix, &((context *)to->sp)->posix) == 0);
}

#endif

int fli_fiber_init(fli_fiber *fiber, size_t stack_size, void (*run)(void *arg), void *arg)
{
    /* A guard page below the stack makes a stack overflow crash instead of writing to other memory. */
    size_t guard = 4096;
    char  *at = mmap(NULL, stack_size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 0;
    FLI_ASSERT(mprotect(at, guard, PROT_NONE) == 0);
    *fiber = (fli_fiber){ .stack = at + guard, .size = stack_size };
    fli_fiber_reset(fiber, run, arg);
    return 1;
}

void fli_fiber_fini(fli_fiber *fiber)
{
    if (fiber->stack != NULL) FLI_ASSERT(munmap((char *)fiber->stack - 4096, fiber->size + 4096) == 0);
    fiber->stack = NULL;
}
