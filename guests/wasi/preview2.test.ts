import { expect, test } from 'vitest'
import { WASI_PREVIEW2_DENIED, WASI_PREVIEW2_FUNCTIONS, camelCase } from '../wasm/index.ts'
import { createWasiPreview2 } from './preview2.ts'

const nothing = () => undefined
function waitFor(waitNs: bigint): void {
  const untilNs = process.hrtime.bigint() + waitNs
  while (process.hrtime.bigint() < untilNs);
}
const host = () => {
  const output = { write: nothing }
  return createWasiPreview2({
    args: [],
    env: {},
    stdin: new Uint8Array(),
    stdout: output,
    stderr: output,
    clock: { nowNs: process.hrtime.bigint, waitFor },
    beforeWait: nothing,
  })
}

const offered = Object.entries(WASI_PREVIEW2_FUNCTIONS).flatMap(([name, functions]) =>
  functions.map((wanted): [string, string] => [name, wanted]),
)

test.each(offered)('%s offers %s as importable by modules', (name, wanted) => {
  const [, resource, method] = /^\[method\](.+)\.(.+)$/.exec(wanted) ?? []
  const holder = host()[name] ?? {}
  if (resource === undefined || method === undefined) {
    expect(holder[camelCase(wanted)]).toBeTypeOf('function')
    return
  }
  const className = camelCase(`x-${resource}`).slice(1)
  const made = holder[className] as { prototype: Record<string, unknown> }
  expect(made.prototype[camelCase(method)]).toBeTypeOf('function')
})

test.each(WASI_PREVIEW2_DENIED)('%s can be linked and always fails', (name) => {
  const holder = host()[name] ?? {}
  expect(() => (holder['anything'] as () => void)()).toThrow(`${name}: anything is not granted to this task`)
})

test('waits until the earliest polled time', () => {
  const { poll } = host()['wasi:io/poll'] as { poll: (list: unknown[]) => Uint32Array }
  const clock = host()['wasi:clocks/monotonic-clock'] as {
    now: () => bigint
    subscribeDuration: (durationNs: bigint) => unknown
  }
  const startedNs = clock.now()
  const ready = poll([clock.subscribeDuration(60_000_000_000n), clock.subscribeDuration(5_000_000n)])
  expect([...ready]).toEqual([1])
  expect(clock.now() - startedNs).toBeGreaterThanOrEqual(5_000_000n)
})
