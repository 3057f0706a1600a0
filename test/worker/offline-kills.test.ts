// decision 0161: a worker is killed between the beginning of a tick, its result and what follows
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { sleep } from '#core/time.ts'

const ROUNDS = 2
const WALL = Date.parse('2026-11-30T12:00:00Z')
const HOUR = 3_600_000

/** Kills the program after it has said so many lines and this much later; resolves with all that it has said. */
async function killed(args: string[], afterLines: number, laterMs: number): Promise<string[]> {
  const program = join(import.meta.dirname, 'offline-program.ts')
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => child.on('close', resolve))
  let text = ''
  let isKilling = false
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part
    if (isKilling || text.split('\n').length <= afterLines) return
    isKilling = true
    void sleep(laterMs).then(() => child.kill('SIGKILL'))
  })
  await ended
  // The last line may be cut.
  return text.split('\n').slice(0, -1)
}

test.each(['requeue', 'fail'])(
  'with on_lost %s, each tick that began has one result after the next start',
  async (onLost) => {
    const folder = mkdtempSync(join(tmpdir(), 'skein-offline-'))
    try {
      const said: string[] = []
      for (let round = 0; round < ROUNDS; round++) {
        const lines = await killed([folder, String(WALL + round * HOUR), onLost], 8 + 5 * round, 7 * round)
        expect(lines).toContain('started')
        said.push(...lines)
      }
      // One more start, which finishes what the last kill has left.
      const last = await killed([folder, String(WALL + ROUNDS * HOUR), onLost], 12, 0)
      said.push(...last)
      const of = (what: string) =>
        said.flatMap((line) => (line.startsWith(`${what} `) ? [line.split(' ')[1] ?? ''] : []))
      const begun = of('begin')
      const kept = new Set([...of('kept'), ...of('lost')])
      const inLast = new Set(last.flatMap((line) => (line.startsWith('begin ') ? [line.split(' ')[1] ?? ''] : [])))
      expect(begun.length).toBeGreaterThan(ROUNDS)
      expect(begun.filter((id) => !kept.has(id) && !inLast.has(id))).toEqual([])
      const times = Map.groupBy(begun, (id) => id)
      // At most one run is under way at each kill.
      const repeated = times.values().filter(({ length }) => length > 1)
      if (onLost === 'fail') expect([...repeated]).toEqual([])
      else expect([...repeated].flatMap((ids) => ids.slice(1)).length).toBeLessThanOrEqual(ROUNDS)
      // The same tick is always the same run.
      const ticks = said.flatMap((line) => (line.startsWith('begin ') ? [line.split(' ').slice(1).join(' ')] : []))
      expect(new Set(ticks).size).toBe(new Set(begun).size)
    } finally {
      rmSync(folder, { recursive: true })
    }
  },
  120_000,
)
