/**
 * Fixed ports for programs, which keep them over kills and restarts. The system hands none of them out (its own
 * begin at 32768), so nobody who asks for any port takes one while it is free; and no two test workers are given the same.
 */
import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/** As many test files run at once (vitest.config.ts). */
export const TEST_WORKERS = 3
const FIRST = 10_000
const PER_WORKER = 5_000

const first = FIRST + ((Number(process.env['VITEST_POOL_ID'] ?? 1) - 1) % TEST_WORKERS) * PER_WORKER
// Somewhere, because another test run may be under way on this machine.
let next = randomInt(PER_WORKER)

export async function freePorts(count: number): Promise<number[]> {
  const found: number[] = []
  while (found.length < count) {
    const port = first + (next++ % PER_WORKER)
    if (await isFree(port)) found.push(port)
  }
  return found
}

export async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1)
  return port
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  const isBound = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false)).listen(port, () => resolve(true))
  })
  if (isBound) await new Promise((resolve) => server.close(resolve))
  return isBound
}
