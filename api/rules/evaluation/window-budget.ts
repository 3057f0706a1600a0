/** How much memory the windows of all domains may take in a process. */

/** The most values that the windows of one domain have; a value has 24 bytes. */
export const MAX_OF_DOMAIN = 2_000_000
/** The most values of all domains: beyond it, no domain may have more than its share. */
export const MAX_OF_PROCESS = 6_000_000
/** Beyond it too, windows that no step used for so long are dropped first: they are read again. */
const UNUSED_MS = 60_000

type Sized = { readonly size: number; readonly usedMs: number }

/** Whether windows of one domain have to become smaller, and which windows of others can be dropped. */
export function judgeWindows<Windows extends Sized>(
  own: Windows,
  all: Iterable<Windows>,
  nowMs: number,
): { isTooMuch: boolean; unused: readonly Windows[] } {
  const isTooMuch = own.size > MAX_OF_DOMAIN
  const others = [...all].filter((one) => one !== own)
  const sumOf = (some: readonly Sized[]) => some.reduce((sum, { size }) => sum + size, own.size)
  if (sumOf(others) <= MAX_OF_PROCESS) return { isTooMuch, unused: [] }
  const unused = others.filter(({ size, usedMs }) => size > 0 && nowMs - usedMs > UNUSED_MS)
  const left = others.filter((one) => !unused.includes(one))
  const share = MAX_OF_PROCESS / (left.filter(({ size }) => size > 0).length + 1)
  return { isTooMuch: isTooMuch || (sumOf(left) > MAX_OF_PROCESS && own.size > share), unused }
}
