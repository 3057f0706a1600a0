/** What rules do with alarms, in the transaction of their states: they raise them, add to them and clear them. */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { formatDurationMs } from '#core/time.ts'
import {
  continueAlarms,
  countOpenAlarms,
  escalateAlarms,
  insertAlarms,
  insertHistory,
  resilenceAlarms,
} from './repository.ts'
import type { AlarmSeries, AlarmSilence, Episode, NewChange, ToldAlarm } from './repository.ts'
import { alarmEntry } from './service.ts'

const keyOf = ({ ruleId, clientId, channelId, subtopic, name }: AlarmSeries) =>
  JSON.stringify([ruleId, clientId, channelId, subtopic, name])

export type Seen = Omit<
  Episode,
  'isNew' | 'count' | 'firstAtSeconds' | 'lastAtSeconds' | 'clearedAtSeconds' | 'silence'
> & {
  atSeconds: number
}

/** Collects what one step of the rules says of alarms: many messages of a series become one row. */
export class Episodes {
  readonly #open = new Map<string, Episode>()
  readonly #all: Episode[] = []

  get isEmpty(): boolean {
    return this.#all.length === 0
  }

  get size(): number {
    return this.#all.length
  }

  /** These return the episode, which may still be silenced before it is stored. */
  raise(seen: Seen): Episode {
    return this.#open.has(keyOf(seen)) ? this.repeat(seen) : this.#begin(seen, { isNew: true, count: 1 })
  }

  /** The condition still holds. */
  repeat(seen: Seen): Episode {
    const open = this.#open.get(keyOf(seen))
    if (open === undefined) return this.#begin(seen, { isNew: false, count: 1 })
    open.count++
    open.lastAtSeconds = Math.max(open.lastAtSeconds, seen.atSeconds)
    open.value = seen.value
    return open
  }

  clear(seen: Seen): Episode {
    const open = this.#open.get(keyOf(seen)) ?? this.#begin(seen, { isNew: false, count: 0 })
    open.clearedAtSeconds = Math.max(seen.atSeconds, open.firstAtSeconds)
    this.#open.delete(keyOf(seen))
    return open
  }

  #begin({ atSeconds, ...seen }: Seen, of: { isNew: boolean; count: number }): Episode {
    const times = { firstAtSeconds: atSeconds, lastAtSeconds: atSeconds, clearedAtSeconds: null }
    const episode: Episode = { ...seen, ...of, ...times, silence: null }
    this.#open.set(keyOf(seen), episode)
    this.#all.push(episode)
    return episode
  }

  /**
   * Stores what was collected. Alarms beyond `maxOpen` are not raised: the next message for which the condition holds tries again. Returns the
   * episodes whose alarms had no room, and those whose alarms are raised only now.
   */
  async store(
    tx: Transaction,
    record: Recorder,
    { domainKey, maxOpen }: { domainKey: number; maxOpen: number | undefined },
  ): Promise<{ refused: readonly Episode[]; late: readonly Episode[] }> {
    const before = this.#all.filter(({ isNew }) => !isNew)
    const continued = before.length === 0 ? [] : await continueAlarms(tx, before)
    const found = new Set(continued.map(({ place }) => place))
    // An alarm that had no room, or was deleted, is raised when its condition is found to hold again.
    const lacking = before.filter(({ count }, place) => count > 0 && !found.has(place))
    const wanted = [...lacking, ...this.#all.filter(({ isNew }) => isNew)]
    const { fitting, refused } = await this.#fit(tx, wanted, { domainKey, maxOpen })
    const inserted =
      fitting.length === 0
        ? []
        : await insertAlarms(
            tx,
            domainKey,
            fitting.map((episode) => ({ ...episode, id: newId() })),
          )
    const isLacking = new Set(lacking)
    const raised = inserted.filter(({ isInserted }) => isInserted)
    const cleared = [...continued, ...raised].filter(({ isCleared }) => isCleared)
    const changes = [
      ...raised.map((alarm) => changeOf(alarm, 'raise')),
      ...cleared.map((alarm) => changeOf(alarm, 'clear')),
    ]
    await insertHistory(tx, changes, null)
    for (const alarm of raised)
      record(alarmEntry('raise', domainKey, alarm, alarm.isSilenced ? { silenced: true } : {}))
    for (const alarm of cleared) record(alarmEntry('clear', domainKey, alarm))
    return { refused, late: fitting.filter((episode) => isLacking.has(episode)) }
  }

  async #fit(
    tx: Transaction,
    wanted: readonly Episode[],
    { domainKey, maxOpen }: { domainKey: number; maxOpen: number | undefined },
  ): Promise<{ fitting: Episode[]; refused: Episode[] }> {
    const refused: Episode[] = []
    if (maxOpen === undefined || wanted.length === 0) return { fitting: [...wanted], refused }
    let open = await countOpenAlarms(tx, domainKey)
    const fitting = wanted.filter((episode) => {
      if (episode.clearedAtSeconds !== null) return true
      if (open++ < maxOpen) return true
      refused.push(episode)
      return false
    })
    return { fitting, refused }
  }
}

/**
 * The maintenance of alarms is over, or another one goes on. Returns the places of those that a user acknowledged meanwhile: nobody else has to know.
 */
export async function endSilence(
  tx: Transaction,
  record: Recorder,
  domainKey: number,
  series: readonly (AlarmSeries & { silence: AlarmSilence | null })[],
): Promise<ReadonlySet<number>> {
  const alarms = await resilenceAlarms(tx, series)
  const told = alarms.filter(({ isSilenced }) => !isSilenced)
  await insertHistory(
    tx,
    told.map((alarm) => changeOf(alarm, 'unsilence')),
    null,
  )
  for (const alarm of told) record(alarmEntry('unsilence', domainKey, alarm))
  return new Set(alarms.filter(({ isAcknowledged }) => isAcknowledged).map(({ place }) => place))
}

/**
 * Escalates alarms that are open and that nobody has acknowledged, once for each of `afterMs`. Returns the places of these. Name each series once.
 */
export async function escalateOpen(
  tx: Transaction,
  record: Recorder,
  domainKey: number,
  series: readonly (AlarmSeries & { afterMs: readonly number[] })[],
): Promise<ReadonlySet<number>> {
  const alarms = await escalateAlarms(
    tx,
    series.map((one) => ({ ...one, count: one.afterMs.length })),
  )
  const changes: NewChange[] = []
  for (const alarm of alarms)
    for (const afterMs of series[alarm.place]?.afterMs ?? []) {
      changes.push(changeOf(alarm, 'escalate'))
      record(alarmEntry('escalate', domainKey, alarm, { after: formatDurationMs(afterMs) }))
    }
  await insertHistory(tx, changes, null)
  return new Set(alarms.map(({ place }) => place))
}

const changeOf = ({ key }: ToldAlarm, change: NewChange['change']): NewChange => ({
  alarmKey: key,
  change,
  assigneeId: null,
  comment: '',
})
