/**
 * Rules whose condition is a function of a task. Each stands by itself: it chooses the next messages that it meets and waits for what the function
 * returns for them, and then its states, what they cause and its place are stored in one transaction. So each message is evaluated once for the rule,
 * whatever fails, and a slow function delays its own rule alone.
 */
import type { Place } from '#api/consumers/index.ts'
import type { Quotas, Recorder } from '#api/identity/index.ts'
import { placeOf } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { monotonicMs } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import type { TriggerMessage } from '#queues/index.ts'
import type { CompiledRule } from '../../compile.ts'
import type { Contacts } from '../../contacts.ts'
import { RuleIndex } from '../../engine/index.ts'
import type { Silencing } from '../../maintenance/silencing.ts'
import { noteChange } from '../../repository.ts'
import { lackOf } from '../../rights.ts'
import type { RightsDeps } from '../../rights.ts'
import { Collected } from '../collected.ts'
import { MAX_DEPTH, publishes } from '../effects.ts'
import { passDue, withChannelsOf } from '../due.ts'
import { Evaluation } from '../evaluation.ts'
import { clientsOf, meetingsOf, readMessages, safeSamples } from '../meetings.ts'
import type { Meeting, Read } from '../meetings.ts'
import { addCounts, countErrors, pauseRule, readDue, readStates, storeOwnPlace } from '../repository.ts'
import type { ChannelRow, StateRow, StepDomain } from '../repository.ts'
import type { Sample } from '../samples.ts'
import { StepTurns } from '../step-turns.ts'
import { storeEvaluation } from '../stored-evaluation.ts'
import { insertCall, listStanding, removeCall, repeatCall } from './repository.ts'
import type { EndedCall, SampleKey } from './repository.ts'
import { NOT_UNDERSTOOD, verdictsOf } from './verdicts.ts'
import type { Verdict } from './verdicts.ts'

/** Rules that one step serves. */
const MAX_RULES = 20
/** No further rule is served in a step after this time. */
const MAX_STEP_MS = 250
/** Messages of one call, each with one record; the last message of the channel may exceed them. */
const MAX_GIVEN = 100
/** Records of one message that a function decides about. */
const MAX_OF_MESSAGE = 1_000
/** About how many characters a call has. */
const MAX_GIVEN_CHARS = 262_144
/** About how many characters a message has beside its texts. */
const CHARS_OF_HEADER = 200
/** Attempts at a call; then the rule is paused. */
const MAX_ATTEMPTS = 3
/** The pause before the second attempt; before each further one it is as much longer. */
const RETRY_SECONDS = 5
/** States that time changes, of one rule. */
const MAX_DUE = 1_000
/** Messages that arrived before the time is due are settled after it. */
const SETTLE_MS = 500
/** Batches of other channels that are passed without storing it. */
const UNSTORED_BATCHES = 200

type Deps = RightsDeps & { quotas: Pick<Quotas, 'ofDomain'>; contacts: Pick<Contacts, 'record'> }

type Outcome = { hasMore: boolean; published: boolean; started: boolean; notified: boolean }

const NOTHING: Outcome = { hasMore: false, published: false, started: false, notified: false }

type Step = {
  domain: StepDomain
  record: Recorder
  /** All rules of the domain that are enabled, by their keys. */
  rules: ReadonlyMap<number, CompiledRule>
  silencing: Silencing
  channelsOf: (rule: CompiledRule) => Promise<ReadonlyMap<number, ChannelRow>>
}

type Serving = Step & { rule: CompiledRule; channels: ReadonlyMap<number, ChannelRow> }

export const isDecidedByTask = ({ conditionTask }: CompiledRule): boolean => conditionTask !== undefined

export async function stepFunctions(tx: Transaction, deps: Deps, step: Step): Promise<Outcome> {
  let outcome = NOTHING
  const standing = await listStanding(tx, step.domain.domainKey, MAX_RULES)
  const begunMs = monotonicMs()
  for (const { key, place, call } of standing) {
    // The other rules of the domain wait for the step.
    if (monotonicMs() - begunMs > MAX_STEP_MS) return { ...outcome, hasMore: true }
    const known = step.rules.get(key)
    if (known === undefined) continue
    const rule = { ...known, place }
    const serving = { ...step, rule, channels: await step.channelsOf(rule) }
    const isCrowded = standing.length === MAX_RULES
    const of = call === undefined ? await choose(tx, deps, serving, isCrowded) : await take(tx, deps, serving, call)
    outcome = {
      hasMore: outcome.hasMore || of.hasMore,
      published: outcome.published || of.published,
      started: outcome.started || of.started,
      notified: outcome.notified || of.notified,
    }
  }
  return outcome
}

/** Pauses the rule. What it chose is chosen again when it goes on. */
async function pause(
  tx: Transaction,
  { rule, domain }: Serving,
  { place = rule.place, ...why }: { place?: Place; kind: 'right' | 'loop' | 'function'; reason: string },
): Promise<Outcome> {
  await removeCall(tx, rule.key)
  await pauseRule(tx, rule.key, { place, ...why })
  await noteChange(tx, domain.domainKey)
  return { ...NOTHING, hasMore: true }
}

async function pauseLacking(tx: Transaction, deps: Deps, serving: Serving): Promise<Outcome | undefined> {
  const { rule, domain } = serving
  const reason = await lackOf(tx, deps, rule.userKey, domain.domainId, rule)
  return reason === undefined ? undefined : await pause(tx, serving, { kind: 'right', reason })
}

const readOf = async (tx: Transaction, { rule, channels }: Serving, until?: Place): Promise<Read> =>
  await readMessages(tx, { place: rule.place, channels, index: new RuleIndex([rule], ({ filter }) => filter), until })

/** A sample with its number among all of its message. */
type Numbered = { sample: Sample; number: number }
type Met = readonly (readonly [LiveMessage, readonly Numbered[]])[]

/** The messages that the rule meets, each with its samples; the first one that is left, if any. */
async function metBy(
  tx: Transaction,
  { rule, domain }: Serving,
  messages: readonly LiveMessage[],
): Promise<{ met: Met; left: LiveMessage | undefined }> {
  const clients = await clientsOf(tx, domain.domainKey, [rule], { messages, due: [] })
  const { meetings, left } = await meetingsOf(messages, new RuleIndex([rule], ({ filter }) => filter), clients)
  const ofMessages = Map.groupBy(meetings, ({ sample }: Meeting) => sample.message)
  const met = [...ofMessages].map(
    ([message, all]) =>
      [message, all.flatMap(({ sample, rules }, number) => (rules.length === 0 ? [] : [{ sample, number }]))] as const,
  )
  return { met: met.filter(([, own]) => own.length > 0), left }
}

/** What the function decided about, in order. The client may have left the rule meanwhile. */
async function samplesWith(
  messages: readonly LiveMessage[],
  verdicts: ReadonlyMap<string, Verdict>,
  clients: Awaited<ReturnType<typeof clientsOf>>,
): Promise<{ sample: Sample; verdict: Verdict }[]> {
  const turns = createTurns()
  const found: { sample: Sample; verdict: Verdict }[] = []
  for (const message of messages) {
    if (turns.isOver) await turns.next()
    const { seq, message: number } = placeOf(message)
    for (const [at, sample] of safeSamples(message, clients.ofMessage(message).client).entries()) {
      const key = `${seq}/${number}/${at}`
      if (verdicts.has(key)) found.push({ sample, verdict: verdicts.get(key) })
    }
  }
  return found
}

const placeBefore = (message: LiveMessage): Place => {
  const { xid, seq, message: number } = placeOf(message)
  return { xid, seq, message: number }
}

/** Chooses the next messages, and hands them to the task. */
async function choose(tx: Transaction, deps: Deps, serving: Serving, isCrowded: boolean): Promise<Outcome> {
  const { rule, domain } = serving
  const read = await readOf(tx, serving)
  const { met, left } = await metBy(tx, serving, read.messages)
  const chosen = chooseOf(rule, met)
  const stoppedAt = chosen.stoppedAt ?? left
  const place = stoppedAt === undefined ? read.place : placeBefore(stoppedAt)
  if (chosen.given.length === 0)
    return await passOver(tx, deps, serving, { ...chosen, read, place, stoppedAt, isCrowded })
  const paused = await pauseLacking(tx, deps, serving)
  if (paused !== undefined) return paused
  if (chosen.dropped > 0)
    await countErrors(tx, [{ ruleId: rule.id, reason: reasonOfDropped(chosen.dropped), count: chosen.dropped }])
  const { given, samples, sinceMs } = chosen
  const of = { ruleKey: rule.key, domainKey: domain.domainKey, taskId: rule.conditionTask ?? '', runId: newId() }
  await insertCall(tx, { ...of, given, samples, sinceMs, until: place })
  return { ...NOTHING, started: true }
}

const reasonOfDropped = (count: number) =>
  `${count} records of one message were not evaluated: a function decides about at most ${MAX_OF_MESSAGE} records of a message`

type Chosen = {
  given: TriggerMessage[]
  samples: SampleKey[]
  sinceMs: number
  dropped: number
  stoppedAt: LiveMessage | undefined
  /** The rule would cause itself without end. */
  isLoop: boolean
}

function chooseOf(rule: CompiledRule, met: Met): Chosen {
  const chosen: Chosen = { given: [], samples: [], sinceMs: 0, dropped: 0, stoppedAt: undefined, isLoop: false }
  let chars = 0
  for (const [message, all] of met) {
    const [first] = all
    const isLoop = publishes(rule) && (first?.sample.depth ?? 0) >= MAX_DEPTH
    if (chosen.given.length > 0 && (isLoop || chosen.given.length >= MAX_GIVEN || chars > MAX_GIVEN_CHARS))
      return { ...chosen, stoppedAt: message }
    if (isLoop) return { ...chosen, stoppedAt: message, isLoop }
    const { seq, message: number } = placeOf(message)
    // A function reads records.
    const records = all.flatMap(({ sample, number: at }) =>
      sample.record === undefined ? [] : [{ sample, record: sample.record, at }],
    )
    for (const { sample, record, at } of records.slice(0, MAX_OF_MESSAGE)) {
      chosen.given.push(givenOf(sample, record))
      chosen.samples.push([seq, number, at])
      chars += (record.vs?.length ?? 0) + (record.vd?.length ?? 0) + CHARS_OF_HEADER
    }
    chosen.dropped = Math.max(0, records.length - MAX_OF_MESSAGE)
    if (chosen.sinceMs === 0 && records.length > 0) chosen.sinceMs = message.receivedAtSeconds * 1000
    // Its error names one message.
    if (chosen.dropped > 0) return { ...chosen, stoppedAt: met[met.findIndex(([one]) => one === message) + 1]?.[0] }
  }
  return chosen
}

const givenOf = ({ message, protocol }: Sample, record: NonNullable<Sample['record']>): TriggerMessage => ({
  channel_id: message.channelId,
  subtopic: message.subtopic,
  publisher: message.publisherId,
  protocol,
  records: [record],
})

/** No message is for the function. What time changes is settled when no message before it is left. */
async function passOver(
  tx: Transaction,
  deps: Deps,
  serving: Serving,
  {
    read,
    place,
    stoppedAt,
    isLoop,
    isCrowded,
  }: { read: Read; place: Place; stoppedAt: LiveMessage | undefined; isLoop: boolean; isCrowded: boolean },
): Promise<Outcome> {
  const { rule } = serving
  if (isLoop) {
    const reason = `${MAX_DEPTH} rules in a row caused a message: the rule would cause itself without end`
    return await pause(tx, serving, { place: { ...place, message: place.message + 1 }, kind: 'loop', reason })
  }
  const isEnd = read.isEnd && stoppedAt === undefined
  const nowMs = Date.now() - SETTLE_MS
  const due = isEnd ? await readDue(tx, [rule.key], nowMs, MAX_DUE) : []
  if (read.messages.length > 0 || read.passed >= UNSTORED_BATCHES || isCrowded || due.length > 0)
    await storeOwnPlace(tx, rule.key, place, true)
  // As many rules as a step serves passed messages that were not for them: others may stand behind these.
  const isLeft = isCrowded && (read.messages.length > 0 || read.passed > 0)
  if (due.length === 0) return { ...NOTHING, hasMore: !isEnd || isLeft }
  const paused = await pauseLacking(tx, deps, serving)
  if (paused !== undefined) return paused
  const outcome = await evaluate(tx, deps, serving, { messages: [], verdicts: new Map(), due, nowMs })
  return { ...outcome, hasMore: outcome.left || due.length >= MAX_DUE }
}

/** Takes what the function returned. */
async function take(tx: Transaction, deps: Deps, serving: Serving, call: EndedCall): Promise<Outcome> {
  const { rule } = serving
  const paused = await pauseLacking(tx, deps, serving)
  if (paused !== undefined) return paused
  const verdicts = call.status === 'done' ? verdictsOf(call.results, call.samples.length) : (call.reason ?? '')
  if (typeof verdicts === 'string') return await fail(tx, serving, call, verdicts)
  const of = new Map(call.samples.map((key, at) => [key.join('/'), verdicts[at]]))
  const read = await readOf(tx, serving, call.until)
  const outcome = await evaluate(tx, deps, serving, {
    messages: read.messages,
    verdicts: of,
    due: [],
    nowMs: Date.now(),
  })
  const { stoppedAt } = outcome
  // What is left has its verdicts: the next step goes on there.
  await storeOwnPlace(tx, rule.key, stoppedAt === undefined ? call.until : placeBefore(stoppedAt), true)
  if (stoppedAt === undefined) await removeCall(tx, rule.key)
  return { ...outcome, hasMore: true }
}

/** The call is repeated, or the rule is paused where it stands. */
async function fail(tx: Transaction, serving: Serving, call: EndedCall, why: string): Promise<Outcome> {
  const { rule } = serving
  if (call.status === 'refused')
    return await pause(tx, serving, { kind: 'function', reason: `the task that decides cannot be started: ${why}` })
  if (call.attempt >= MAX_ATTEMPTS)
    return await pause(tx, serving, {
      kind: 'function',
      reason: `the task that decides failed ${call.attempt} times for the same messages: ${why}`,
    })
  await countErrors(tx, [{ ruleId: rule.id, reason: `the task that decides failed: ${why}`, count: 1 }])
  await repeatCall(tx, rule.key, { runId: newId(), afterSeconds: RETRY_SECONDS * call.attempt })
  return { ...NOTHING, started: true }
}

type Evaluated = Outcome & { stoppedAt: LiveMessage | undefined; left: boolean }

async function evaluate(
  tx: Transaction,
  deps: Deps,
  { rule, domain, record, silencing, channels }: Serving,
  {
    messages,
    verdicts,
    due,
    nowMs,
  }: {
    messages: readonly LiveMessage[]
    verdicts: ReadonlyMap<string, Verdict>
    due: readonly StateRow[]
    nowMs: number
  },
): Promise<Evaluated> {
  const clients = await clientsOf(tx, domain.domainKey, [rule], { messages, due })
  const samples = await samplesWith(messages, verdicts, clients)
  const withDue = await withChannelsOf(tx, due, channels)
  const collected = new Collected(
    { domain, channels: withDue, client: (id) => clients.byId(id) },
    new Map([[rule.key, rule]]),
  )
  const evaluation = new Evaluation((caused) => collected.take(caused))
  const states = await readStates(
    tx,
    samples.map(({ sample: { series } }) => ({ ruleKey: rule.key, series })),
  )
  for (const row of [...due, ...states]) evaluation.give(rule, row.series, row)
  const turns = new StepTurns(tx, collected)
  let [message, stoppedAt]: (LiveMessage | undefined)[] = []
  let unclear = 0
  for (const { sample, verdict } of samples) {
    if (sample.message !== message) {
      if (message !== undefined && turns.isFull) {
        stoppedAt = sample.message
        break
      }
      ;({ message } = sample)
    }
    if (turns.isOver) await turns.next()
    if (verdict === undefined) unclear++
    evaluation.decide(rule, sample, verdict)
  }
  const left = await passDue(evaluation, turns, { due, paused: new Map(), channels: withDue, nowMs })
  const outcome = await storeEvaluation(
    tx,
    record,
    { evaluation, collected },
    {
      silencing,
      coveredBy: () => [],
      nowMs,
      maxOpen: deps.quotas.ofDomain(domain.domainKey, 'open_alarms'),
      contacts: deps.contacts,
    },
  )
  if (unclear > 0) await countErrors(tx, [{ ruleId: rule.id, reason: NOT_UNDERSTOOD, count: unclear }])
  await addCounts(tx, evaluation.counts)
  return { ...outcome, hasMore: false, stoppedAt, left }
}
