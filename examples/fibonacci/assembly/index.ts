/** The n-th Fibonacci number: fib(0) = 0, fib(1) = 1. Beyond n = 93 the result wraps at 64 bits. */
export function fibonacci(n: i32): u64 {
  let previous: u64 = 0
  let current: u64 = 1
  for (let i: i32 = 0; i < n; i++) {
    const next = previous + current
    previous = current
    current = next
  }
  return previous
}
