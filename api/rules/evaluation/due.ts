/** What time alone changes, in a step. */
import type { Place } from '#api/consumers/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { Evaluation } from './evaluation.ts'
import { listChannelsByKey } from './repository.ts'
import type { ChannelRow, StateRow } from './repository.ts'
import type { Series } from './samples.ts'
import type { StepTurns } from './step-turns.ts'

/** With the channels of what is due: a rule may not read them any more. */
export async function withChannelsOf(
  tx: Transaction,
  due: readonly StateRow[],
  channels: ReadonlyMap<number, ChannelRow>,
): Promise<ReadonlyMap<number, ChannelRow>> {
  const lacking = new Set(due.map(({ series }) => series.channelKey).filter((key) => !channels.has(key)))
  const rows = await listChannelsByKey(tx, [...lacking])
  return new Map([...channels, ...rows.map((row) => [row.key, row] as const)])
}

/** True: some are left, because those before them took long enough. They stay due. */
export async function passDue(
  evaluation: Evaluation,
  turns: StepTurns,
  {
    due,
    paused,
    channels,
    nowMs,
  }: {
    due: readonly StateRow[]
    paused: ReadonlyMap<number, Place>
    channels: ReadonlyMap<number, ChannelRow>
    nowMs: number
  },
): Promise<boolean> {
  const isDue = new Set(due.map(({ ruleKey }) => ruleKey))
  const entries = [...evaluation.states].filter(({ rule }) => isDue.has(rule.key) && !paused.has(rule.key))
  return await turns.forEach(entries, (entry) => {
    // Nobody can look at what is raised for a channel that was deleted.
    if (isOfChannel(entry) && entry.state.status === 'pending' && !channels.has(entry.series.channelKey))
      evaluation.forget(entry)
    else evaluation.pass(entry, nowMs)
  })
}

const isOfChannel = ({ series }: { series: Series }): boolean => series.channelKey !== 0
