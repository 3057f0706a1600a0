/**
 * Who is notified of what rules cause, by mails and webhook requests: nobody in a maintenance window. Of what is over before the window ends,
 * nobody is, and of what is still active then, the contacts are. If a user acknowledged its alarm, they are not: it counts as if they were. Of what
 * contacts were notified that it raised, they are notified that it cleared, also in a window. What is done
 * for alarms that nobody acknowledges waits for the end of a window too.
 */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { inTurns } from '#core/turns.ts'
import { endSilence, escalateOpen } from '../alarms/raising.ts'
import type { AlarmSeries, Episode } from '../alarms/repository.ts'
import type { NewNotification } from '../contacts.ts'
import type { Silence, Silencing } from '../maintenance/silencing.ts'
import { beginEscalation, escalate } from './evaluation.ts'
import type { Caused, Escalation, SeriesState } from './evaluation.ts'

/** One effect of a rule, in the order in which they came about. */
export type Telling = {
  caused: Caused
  /** The series of its alarm, if the rule has one. */
  alarm: AlarmSeries | undefined
  episode: Episode | undefined
  notifications: readonly NewNotification[]
  /** What else is done if the alarm is escalated. */
  acts: readonly (() => void)[]
}

export type TellingDeps = {
  domainKey: number
  silencing: Silencing
  /** The clients of a rule about silence that its outage covers. */
  coveredBy: (ruleKey: number) => readonly string[]
  nowMs: number
}

/** Silences what is in maintenance, in the states and the alarms, and returns what is sent. */
export async function settleTellings(
  tx: Transaction,
  record: Recorder,
  tellings: readonly Telling[],
  deps: TellingDeps,
): Promise<NewNotification[]> {
  const { silencing, domainKey, nowMs } = deps
  const asking = tellings.filter(({ caused }) => caused.effect.kind !== 'clear')
  const found = await silencing.find(
    tx,
    domainKey,
    asking.map(({ caused }) => ({
      ruleId: caused.rule.id,
      clientIds: clientsOf(caused, deps),
      atMs: caused.isLate || caused.effect.kind === 'escalate' ? nowMs : caused.effect.atMs,
    })),
  )
  const silences = new Map(asking.map((telling, index) => [telling, found[index]]))
  const late = tellings.filter(({ caused }) => caused.isLate)
  const ending = late.flatMap((telling) =>
    telling.alarm === undefined ? [] : [{ telling, ...telling.alarm, silence: silences.get(telling) ?? null }],
  )
  const answered = await endSilence(tx, record, domainKey, ending)
  const isAnswered = new Set(ending.flatMap(({ telling }, place) => (answered.has(place) ? [telling] : [])))
  const escalated = await settleEscalations(tx, record, tellings, { domainKey, silences })
  const sent: NewNotification[] = []
  const episodes = new Map<SeriesState, Episode>()
  await inTurns(tellings, (telling) => {
    const { caused, episode, notifications } = telling
    const { entry } = caused
    if (caused.effect.kind === 'escalate') {
      if (!escalated.has(entry)) return
      for (const act of telling.acts) act()
      for (const one of notifications) sent.push(one)
      return
    }
    const wasSilenced = entry.silencedUntilMs !== null
    const silence = silences.get(telling)
    if (episode !== undefined) episodes.set(entry, episode)
    const isTold = settle(telling, silence)
    if (caused.effect.kind === 'clear' || (caused.effect.kind === 'raise' && entry.silencedUntilMs !== null))
      escalate(entry, null)
    else if (caused.effect.kind === 'raise') beginEscalation(entry, Date.now())
    // An alarm that is only now raised, for which there was no room before, is as silent as its state.
    const shown = episodes.get(entry)
    if (shown !== undefined && caused.effect.kind !== 'clear') shown.silence = alarmSilence(entry, silence)
    if (isTold && !(wasSilenced && isAnswered.has(telling))) for (const one of notifications) sent.push(one)
  })
  return sent
}

/** Sets whether the state is silenced. Returns whether there are notifications of the effect. */
function settle({ caused }: Telling, silence: Silence | undefined): boolean {
  const { entry, effect } = caused
  const wasSilenced = entry.silencedUntilMs !== null
  switch (effect.kind) {
    case 'raise':
      silenceUntil(entry, silence?.untilMs ?? null)
      return silence === undefined
    case 'repeat':
      return !wasSilenced && silence === undefined
    case 'clear':
      silenceUntil(entry, null)
      return !wasSilenced
    case 'escalate':
      throw new Error('an escalation was settled before')
  }
}

/** Returns the states whose alarms are escalated. Those in maintenance are looked at again at its end, those that a user acknowledged when that is taken back. */
async function settleEscalations(
  tx: Transaction,
  record: Recorder,
  tellings: readonly Telling[],
  { domainKey, silences }: { domainKey: number; silences: ReadonlyMap<Telling, Silence | undefined> },
): Promise<ReadonlySet<SeriesState>> {
  const due = new Map<SeriesState, AlarmSeries & { afterMs: number[] }>()
  for (const telling of tellings) {
    const { caused, alarm } = telling
    const { entry, effect } = caused
    if (effect.kind !== 'escalate') continue
    const silence = silences.get(telling)
    const before = due.get(entry)
    if (before !== undefined) before.afterMs.push(effect.afterMs)
    else if (silence === undefined && alarm !== undefined) due.set(entry, { ...alarm, afterMs: [effect.afterMs] })
    else waitUntil(entry, silence?.untilMs ?? null)
  }
  const found = await escalateOpen(tx, record, domainKey, [...due.values()])
  const escalated = new Set<SeriesState>()
  for (const [place, [entry, { afterMs }]] of [...due].entries())
    if (found.has(place)) {
      escalate(entry, { ...(entry.escalation as Escalation), doneMs: Math.max(...afterMs) })
      escalated.add(entry)
    } else waitUntil(entry, null)
  return escalated
}

function waitUntil(entry: SeriesState, atMs: number | null): void {
  entry.escalateAtMs = atMs
  entry.isChanged = true
}

function silenceUntil(entry: SeriesState, untilMs: number | null): void {
  if (entry.silencedUntilMs === untilMs) return
  entry.silencedUntilMs = untilMs
  entry.isChanged = true
}

const alarmSilence = ({ silencedUntilMs }: SeriesState, silence: Silence | undefined): Episode['silence'] =>
  silencedUntilMs === null ? null : { id: silence?.id ?? null, name: silence?.name ?? '', untilMs: silencedUntilMs }

/** An outage is about all the clients that it covers. */
function clientsOf({ rule, series }: Caused, { coveredBy }: TellingDeps): readonly string[] {
  if (series.publisherId !== '') return [series.publisherId]
  return rule.silence === undefined ? [] : coveredBy(rule.key)
}
