import { expect, it } from 'vitest'
import type { Cli } from '../shared/command.ts'
import type { Given } from '../shared/values.ts'
import { overview } from './overview.ts'

const STEP = { messages: 4, records: 8, messages_per_second: 0.1, records_per_second: 0.2 }
const SOURCES = [{ kind: 'task', id: 'x', name: 'average', count: 3 }]
const CHANGES = [{ operation: 'task.create' }]

async function shown(answer: object): Promise<unknown> {
  const values: unknown[] = []
  const cli = {
    output: { isTerminal: true },
    call: () => Promise.resolve({ value: answer }),
    show: (_form: string, { value }: { value: unknown }) => void values.push(value),
  }
  await overview.commands[0]?.run?.(cli as unknown as Cli, {} as Given)
  return values[0]
}

it('shows on a terminal the number of dead letters, and a table of their sources', async () => {
  const clients = { total: 2, online: 1, series: [] }
  const answer = { clients, dead_letters: { total: 3, sources: SOURCES }, changes: CHANGES }
  const counts = { clients: { total: 2, online: 1 }, dead_letters: 3 }
  expect(await shown(answer)).toEqual({ ...counts, dead_letter_sources: SOURCES, changes: CHANGES })
  expect(await shown({ ...answer, messages: { series: [STEP, STEP] } })).toEqual({
    ...counts,
    arrived: { messages_per_second: 0.1, records_per_second: 0.2, messages: 8, records: 16 },
    dead_letter_sources: SOURCES,
    changes: CHANGES,
  })
})

it('shows no table without dead letters, nor for the platform', async () => {
  const clients = { total: 2, online: 1 }
  expect(await shown({ clients, dead_letters: { total: 0, sources: [] } })).toEqual({ clients, dead_letters: 0 })
  expect(await shown({ clients })).toEqual({ clients })
})
