/**
 * Kills processes while messages cause effects (`test/faults/effects.test.ts`), in rounds of which each compares the sums: acknowledged, published as
 * results, published by a guest, told to webhooks. `BENCH_EFFECTS_KILLS` are killed in a run (200). The figures of each round are a line of
 * `BENCH_EFFECTS_RECORD` (bench/results/effects.jsonl), and what is printed are the sums of all of its lines: a run continues what others began.
 * It runs only by name.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { printTable } from './statistics.ts'

const ROOT = join(import.meta.dirname, '..')
const ROUND_KILLS = 25
const TEST = 'test/faults/effects.test.ts'

type Round = {
  kills: Record<string, number>
  values: { acknowledged: number; poison: number; told: number }
  sums: { acknowledged: number; results: number; published_and_poison: number; told: number; delivered: number }
  repeated_deliveries: number
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

export async function benchEffects(): Promise<void> {
  const record = resolve(ROOT, process.env['BENCH_EFFECTS_RECORD'] ?? 'bench/results/effects.jsonl')
  mkdirSync(dirname(record), { recursive: true })
  let left = Number(process.env['BENCH_EFFECTS_KILLS'] ?? 200)
  while (left > 0) {
    const kills = Math.min(left, ROUND_KILLS)
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
    const { status } = spawnSync(process.execPath, [vitest, 'run', '--project', 'faults', TEST], {
      cwd: ROOT,
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { ...process.env, SKEIN_TEST_KILLS: String(kills), SKEIN_TEST_EFFECTS_RECORD: record },
    })
    if (status !== 0) throw new Error('the sums of a round are not equal; its figures are not in the record')
    left -= kills
  }
  show(readRounds(record))
}

const readRounds = (record: string): Round[] =>
  existsSync(record)
    ? readFileSync(record, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Round)
    : []

function show(rounds: readonly Round[]): void {
  const kinds = [...new Set(rounds.flatMap(({ kills }) => Object.keys(kills)))]
  const kills = kinds.map((kind) => `${sum(rounds.map((round) => round.kills[kind] ?? 0))} ${kind}`)
  const count = sum(rounds.flatMap((round) => Object.values(round.kills)))
  const of = (read: (round: Round) => number) => sum(rounds.map(read))
  const areEqual = rounds.every(
    ({ sums }) =>
      sums.acknowledged === sums.results &&
      sums.acknowledged === sums.published_and_poison &&
      sums.told === sums.delivered,
  )
  const grouped = (value: number) => value.toLocaleString('en')
  printTable(`Effects of messages: ${count} kills in ${rounds.length} rounds`, [
    { name: 'killed', figure: kills.join(', ') },
    { name: 'values acknowledged', figure: grouped(of(({ values }) => values.acknowledged)) },
    {
      name: 'sum acknowledged, of the results, published by the guest with its dead letters',
      figure: [
        of(({ sums }) => sums.acknowledged),
        of(({ sums }) => sums.results),
        of(({ sums }) => sums.published_and_poison),
      ]
        .map(grouped)
        .join(', '),
      target: 'equal',
      isReached: areEqual,
    },
    {
      name: 'told to webhooks, sum acknowledged and delivered',
      figure: `${grouped(of(({ values }) => values.told))} values, ${grouped(of(({ sums }) => sums.told))} and ${grouped(of(({ sums }) => sums.delivered))}`,
      target: 'equal',
      isReached: areEqual,
    },
    {
      name: 'deliveries that were repeated, under their ids',
      figure: grouped(of((round) => round.repeated_deliveries)),
    },
  ])
}
