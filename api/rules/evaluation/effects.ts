/** What rules cause: alarms, publications and starts of tasks, as rows of the transaction that moves their place. */
import { formatDurationMs } from '#core/time.ts'
import type { TriggerMessage } from '#queues/index.ts'
import { RuleClient } from '../engine/index.ts'
import type { RuleVariables } from '../engine/index.ts'
import { digestOfParts } from '../digest.ts'
import type { CompiledAction, CompiledRule } from '../compile.ts'
import type { NewNotification } from '../contacts.ts'
import { severityOf } from './evaluation.ts'
import type { Caused } from './evaluation.ts'
import type { NewPublication } from './repository.ts'
import { NO_CLIENT } from './samples.ts'

/** Rules that may cause each other; with one more, the last is paused. */
export const MAX_DEPTH = 8

/** Before the number of a change of a state, where others have the position of a message. */
export const CHANGE = 'change '
/** Before the scheduled time of a rule, in epoch milliseconds. */
export const TICK = 'tick '

export type Known = {
  channelId(key: number): string
  channelName(key: number): string
  /** Undefined: no client sent it, or it is not known in this step. */
  client(id: string): RuleClient | undefined
}

/** The variables of what is caused: those of the sample, or what is left of the last one. */
export function variablesOf({ sample, last, series, effect }: Caused, known: Known): RuleVariables {
  if (sample !== undefined) return sample.variables
  const { record } = last ?? {}
  return {
    value: record?.v,
    string_value: record?.vs,
    bool_value: record?.vb,
    name: record?.n,
    unit: record?.u,
    time: new Date(last?.timeMs ?? effect.atMs),
    channel: known.channelId(series.channelKey),
    subtopic: series.subtopic,
    protocol: last?.protocol ?? '',
    client:
      known.client(series.publisherId) ??
      (series.publisherId === '' ? NO_CLIENT : new RuleClient(series.publisherId, '', [], {})),
    ...(last?.json === undefined ? {} : { json: last.json }),
    ...last?.state,
  }
}

export const valueOf = ({ value, string_value: text, bool_value: bool }: RuleVariables) => value ?? text ?? bool ?? null

export function textOf(caused: Caused, variables: RuleVariables): string {
  // An expression of the user is about one client.
  if (caused.rule.silence !== undefined && caused.series.publisherId === '') return outageText(variables.json)
  const action = caused.rule.actions.find(({ type }) => type === 'alarm')
  const template = action?.type === 'alarm' ? action.text : undefined
  return clean(template?.render(variables, caused.windows) ?? caused.rule.name)
}

/** How many clients of a rule fell silent together. */
export type Outage = { silent: number; total: number }

const outageText = (outage: unknown): string => {
  const { silent, total } = outage as Outage
  return `${silent} of ${total} clients fell silent within a minute`
}

/** Texts of devices may have characters that PostgreSQL does not store. */
const clean = (text: string) => text.replaceAll('\0', '').toWellFormed()

type Publish = Extract<CompiledAction, { type: 'publish' }>
type Mail = Extract<CompiledAction, { type: 'mail' }>
type Webhook = Extract<CompiledAction, { type: 'webhook' }>

/** The default payload of a publication and of a webhook request. */
function describe(caused: Caused, variables: RuleVariables, known: Known): string {
  const { rule, series, effect, entry } = caused
  const { client } = variables
  return JSON.stringify({
    moment: effect.kind,
    rule: { id: rule.id, name: rule.name },
    severity: severityOf(caused),
    at: new Date(effect.atMs).toISOString(),
    ...(effect.kind === 'escalate'
      ? { raised_at: new Date(raisedMsOf(entry)).toISOString(), after: formatDurationMs(effect.afterMs) }
      : {}),
    text: textOf(caused, variables),
    ...(client.id === '' ? {} : { client: { id: client.id, name: client.name } }),
    ...(series.channelKey === 0
      ? {}
      : {
          source: {
            channel: { id: known.channelId(series.channelKey), name: known.channelName(series.channelKey) },
            subtopic: series.subtopic,
          },
        }),
    ...(series.name === '' ? {} : { name: series.name, value: valueOf(variables) }),
    ...(variables.unit === undefined ? {} : { unit: variables.unit }),
    cause: positionOf(effect.cause),
  })
}

/** The same message, series, moment and action publish one message, and start one run. */
function originOf({ series, effect }: Caused, place: number): string {
  const { publisherId, channelKey, subtopic, name } = series
  const parts = [effect.cause, effect.kind, effect.atMs, place, publisherId, channelKey, subtopic, name]
  return digestOfParts(parts).toString('hex')
}

export function publicationOf(
  caused: Caused,
  action: Publish,
  { domainKey, place, variables, known }: { domainKey: number; place: number; variables: RuleVariables; known: Known },
): NewPublication {
  const { rule, sample, last } = caused
  return {
    domainKey,
    ruleKey: rule.key,
    ruleId: rule.id,
    userKey: rule.userKey,
    channelId: action.channelId,
    subtopic: action.subtopic,
    contentType: action.contentType,
    payload: clean(action.payload?.render(variables, caused.windows) ?? describe(caused, variables, known)),
    // What time causes was begun by messages too.
    depth: Math.max(sample?.depth ?? 0, last?.depth ?? 0) + 1,
    origin: originOf(caused, place),
  }
}

/** It acts at each scheduled time: nothing was found. */
const isReport = ({ schedule }: CompiledRule): boolean => schedule?.hasCondition === false

const MAX_SUBJECT_CHARS = 250
const MOMENT_WORDS = { raise: 'raised', repeat: 'goes on', clear: 'cleared' } as const

const momentWords = (effect: Caused['effect']): string =>
  effect.kind === 'escalate' ? `not acknowledged for ${formatDurationMs(effect.afterMs)}` : MOMENT_WORDS[effect.kind]

const raisedMsOf = ({ state }: Caused['entry']): number => (state.status === 'active' ? state.sinceMs : Number.NaN)

/** The channel that its reader must be allowed to read: that of the message or series, or the one that the source names. */
const channelOf = ({ rule, series }: Caused, known: Known) =>
  rule.silence === undefined && rule.state === undefined && rule.schedule?.isOverSeries !== false
    ? known.channelId(series.channelKey)
    : (rule.filter.channels?.[0] ?? '')

/** What deliveries of rules have in common: the channel whose right is looked at again, and the client in whose order they are. */
const lane = (caused: Caused, known: Known) => ({
  publisher: caused.series.publisherId,
  channel: channelOf(caused, known),
})

/** Cut between the halves of a character, a text would be one that PostgreSQL does not store. */
const oneLine = (text: string) =>
  clean(
    text
      .replaceAll(/[\r\n\t]+/g, ' ')
      .trim()
      .slice(0, MAX_SUBJECT_CHARS),
  )

/** The mail of an action, for each of its addresses. */
export function mailsOf(caused: Caused, action: Mail, variables: RuleVariables, known: Known): NewNotification[] {
  const { rule, windows, effect } = caused
  const summary = textOf(caused, variables)
  const subject =
    action.subject?.render(variables, windows) ??
    (isReport(rule) ? summary : `[${severityOf(caused)}] ${momentWords(effect)}: ${summary}`)
  const text = action.text?.render(variables, windows) ?? describeInText(caused, variables, known, summary)
  const payload = { ...lane(caused, known), subject: oneLine(subject), text: clean(text) }
  return action.to.map((contact) => ({ ruleKey: rule.key, contact, payload }))
}

function describeInText(caused: Caused, variables: RuleVariables, known: Known, summary: string): string {
  const { rule, series, effect, entry } = caused
  const { client, unit } = variables
  const value = valueOf(variables)
  const lines: (readonly [string, string])[] = [
    ['Rule', isReport(rule) ? rule.name : `${rule.name} (${momentWords(effect)})`],
    ['Severity', isReport(rule) ? '' : severityOf(caused)],
    ['Time', new Date(effect.atMs).toISOString()],
    ['Raised', effect.kind === 'escalate' ? new Date(raisedMsOf(entry)).toISOString() : ''],
    ['Client', client.name === '' ? client.id : client.name],
    ['Channel', known.channelName(series.channelKey)],
    ['Subtopic', series.subtopic],
    ['Name', series.name],
    ['Value', value === null ? '' : `${String(value)}${unit === undefined ? '' : ` ${unit}`}`],
  ]
  return [summary, '', ...lines.filter(([, text]) => text !== '').map(([label, text]) => `${label}: ${text}`), ''].join(
    '\n',
  )
}

/** The request of an action. */
export function requestOf(caused: Caused, action: Webhook, variables: RuleVariables, known: Known): NewNotification {
  const body = action.payload?.render(variables, caused.windows)
  return {
    ruleKey: caused.rule.key,
    contact: action.url,
    payload: {
      ...lane(caused, known),
      body: clean(body ?? describe(caused, variables, known)),
      ...(body === undefined ? {} : { is_template: true }),
    },
  }
}

export function startOf(caused: Caused, place: number, known: Known): { origin: string; message: TriggerMessage } {
  const { rule, series, effect, sample, last } = caused
  const record = sample?.record ?? last?.record
  const [, seq = '', message = ''] = effect.cause.split('-')
  return {
    origin: `message ${seq}/${message} rule ${rule.id} ${originOf(caused, place)}`,
    message: {
      channel_id: channelOf(caused, known),
      subtopic: series.subtopic,
      publisher: series.publisherId,
      protocol: sample?.protocol ?? last?.protocol ?? '',
      records: record === undefined ? [] : [record],
    },
  }
}

/** What is shown as the cause: a change of a state and a scheduled time are no messages. */
export const positionOf = (cause: string): string => (cause.startsWith(CHANGE) || cause.startsWith(TICK) ? '' : cause)

/** Whether what the rule causes could cause it again. */
export const publishes = ({ actions }: CompiledRule): boolean => actions.some(({ type }) => type === 'publish')
