/** The budgets, what may exceed them and why, and the table that a run prints. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Counts, Measure, Sample } from './measure.ts'
import { OPERATIONS } from './operations.ts'
import type { OperationName } from './operations.ts'

const FILE = join(import.meta.dirname, 'budgets.json')

/** In the order of the table. */
export const MEASURES: readonly Measure[] = [
  'statements',
  'commits',
  'row changes',
  'row locks',
  'WAL bytes',
  'gRPC frames',
  'gRPC bytes',
  'runner frames',
  'runner bytes',
  'promises',
  'timers',
]

/** How far a count may be from its budget: a share of it, or a number. */
type Tolerance = { share?: number; count?: number }

/** Others equal their budgets. */
const TOLERANCES: Partial<Record<Measure, Tolerance>> = {
  // Keys and times have more digits with time, and a page of an index is split now and then.
  'WAL bytes': { share: 0.03 },
  'gRPC bytes': { share: 0.03 },
  'runner bytes': { share: 0.03 },
  // A connection of the pool is free at once or a moment later.
  promises: { share: 0.02 },
  // A timer of the operation before may be started again in this one.
  timers: { count: 1 },
}

/**
 * How many of the calls share a statement, a commit, a lock or a frame depends on when they arrive. Waste of each call adds 64; waste of
 * each group is found in a call alone.
 */
const OF_GROUPS: Tolerance = { count: 20 }
const TOLERANCES_AT_ONCE: Partial<Record<Measure, Tolerance>> = {
  statements: OF_GROUPS,
  commits: OF_GROUPS,
  'row changes': OF_GROUPS,
  'row locks': OF_GROUPS,
  'gRPC frames': OF_GROUPS,
  'runner frames': OF_GROUPS,
  timers: OF_GROUPS,
  // Of the indexes of a table that grows by 64 rows, pages are split in most samples.
  'WAL bytes': { share: 0.08 },
  'gRPC bytes': { share: 0.03 },
  'runner bytes': { share: 0.03 },
  promises: { share: 0.05 },
}

/** An operation that is new has none yet. */
export type Budgets = Partial<Record<OperationName, Counts>>

export function readBudgets(): Budgets {
  return JSON.parse(readFileSync(FILE, 'utf8')) as Budgets
}

/** Operations that were not measured keep their budgets; those that are gone lose them. */
export function writeBudgets(measured: ReadonlyMap<OperationName, readonly Sample[]>): void {
  const known = readBudgets()
  const rows = OPERATIONS.map((name) => {
    const samples = measured.get(name)
    const counts = MEASURES.map((measure) => [measure, samples && countOf(name, measure, samples)])
    return [name, samples === undefined ? known[name] : Object.fromEntries(counts)]
  })
  writeFileSync(FILE, `${JSON.stringify(Object.fromEntries(rows), undefined, 2)}\n`)
}

const isAtOnce = (name: OperationName) => name.endsWith('at once')
/** How many looks at the queue see a batch depends on when they come. */
const isOfGroups = (name: OperationName) => isAtOnce(name) || name.startsWith('a batch')

/**
 * The count of an operation alone: at least two samples have it, and at most one has less, because the work of intervals is in some of
 * the samples and can only add to them. Of operations at once: the lower quartile, because a busy machine divides the calls into more
 * groups, while waste of each call is in all samples.
 */
function countOf(name: OperationName, measure: Measure, samples: readonly Sample[]): number {
  const sorted = samples.map(({ counts }) => counts[measure]).toSorted((a, b) => a - b)
  return sorted[isAtOnce(name) ? Math.floor(sorted.length / 4) : 1] ?? NaN
}

/** What is to be said about a count that does not fit its budget; undefined when it fits. */
export function complaint(
  name: OperationName,
  measure: Measure,
  budget: number,
  samples: readonly Sample[],
): string | undefined {
  const { share = 0, count = 0 } = (isOfGroups(name) ? TOLERANCES_AT_ONCE : TOLERANCES)[measure] ?? {}
  const measured = countOf(name, measure, samples)
  if (Math.abs(measured - budget) <= Math.max(budget * share, count)) return undefined
  const said = `${measure} of \`${name}\`: budget ${budget}, measured ${measured}`
  return measured < budget ? `${said}: lower the budget` : `${said}: ${detailOf(measure, measured, samples)}`
}

function detailOf(measure: Measure, measured: number, samples: readonly Sample[]): string {
  const sample = samples.find(({ counts }) => counts[measure] === measured) ?? samples[0]
  if (measure === 'statements') return (sample?.statements ?? []).map(shortened).join('; ')
  if (measure === 'commits' || measure.startsWith('row ') || measure === 'WAL bytes')
    return (sample?.records ?? []).join('; ')
  return `counts of all samples ${samples.map(({ counts }) => counts[measure]).join(' ')}`
}

const SHOWN_CHARACTERS = 120
const shortened = (text: string) => (text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text)

export function renderTable(measured: ReadonlyMap<OperationName, readonly Sample[]>): string {
  const head = ['', ...MEASURES]
  const rows = [...measured].map(([name, samples]) => [
    name,
    ...MEASURES.map((measure) => String(countOf(name, measure, samples))),
  ])
  const widths = head.map((_title, at) => Math.max(...[head, ...rows].map((row) => (row[at] as string).length)))
  const line = (row: readonly string[]) =>
    row
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] as number) : cell.padStart(widths[at] as number)))
      .join('  ')
  return [head, ...rows].map(line).join('\n')
}
