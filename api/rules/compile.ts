/** Rules, ready to be evaluated. */
import { parseStateName } from '#api/devices/index.ts'
import { parseSubtopic, parseSubtopicFilter } from '#api/messages/index.ts'
import type { Place } from '#api/consumers/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { formatDurationMs, parseDurationMs } from '#core/time.ts'
import type { Severity } from './alarms/schema.ts'
import { STATE_VARIABLES, compileExpression, compileJsonTemplate, compileTextTemplate } from './engine/index.ts'
import type {
  Expression,
  RuleFilter,
  RuleTiming,
  SilenceTimes,
  Template,
  WindowRequest,
  WindowTime,
} from './engine/index.ts'
import type { StoredRule } from './repository.ts'
import type { Moment, RuleAction, RuleDefinition } from './schema.ts'
import { requireOfSeries, scheduleOf } from './timetable.ts'
import type { ScheduleSource } from './timetable.ts'

const MAX_HOLD_MS = 86_400_000
const MIN_SILENCE_MS = 5_000
const MAX_SILENCE_MS = 30 * 86_400_000
const DEFAULT_SHARE = 0.5
/** `last` looks back as far as the longest window. */
const MAX_WINDOW_MS = 86_400_000
const MAX_COOLDOWN_MS = 30 * 86_400_000
const MIN_ESCALATION_MS = 60_000
const MAX_ESCALATION_MS = 7 * 86_400_000
const EVERY_SUBTOPIC = '>'

/** When an action acts. `afterMs`: for how long nobody acknowledged the alarm; undefined: it is not for that. */
type When = { on: ReadonlySet<Moment>; afterMs: number | undefined }

export type CompiledAction =
  | { type: 'alarm'; text: Template | undefined }
  | (When & {
      type: 'publish'
      channelId: string
      subtopic: string
      payload: Template | undefined
      contentType: string
    })
  | (When & { type: 'start'; taskId: string })
  | (When & {
      type: 'mail'
      to: readonly string[]
      subject: Template | undefined
      text: Template | undefined
    })
  | (When & { type: 'webhook'; url: string; payload: Template | undefined })

/** What a rule about the state of clients looks at. */
export type StateSource = {
  /** Name of the document; empty: the one without a name. */
  document: string
  /** Whether a change of the document, and going online or offline, can change whether the condition holds. */
  followsDocument: boolean
  followsConnection: boolean
  /** It looks at documents, also in the texts of its actions. */
  readsDocuments: boolean
}

/** What a definition says, without the rule that it belongs to. */
export type CompiledDefinition = {
  filter: RuleFilter
  /** Undefined: it is about something else. */
  silence: SilenceTimes | undefined
  /** Undefined: it is about something else. */
  state: StateSource | undefined
  /** Undefined: it is about something else. With none of these it evaluates messages. */
  schedule: ScheduleSource | undefined
  condition: Expression
  /** Id of the task whose function decides instead. */
  conditionTask: string | undefined
  clearWhen: Expression | undefined
  timing: RuleTiming
  severity: Severity
  windowTime: WindowTime
  /** The longest window; 0: none. */
  windowMs: number
  /** Names of the other series that it asks for. */
  windowNames: readonly string[]
  actions: readonly CompiledAction[]
  /** After how long actions act because nobody acknowledged its alarm, each time once, the shortest first. */
  escalations: readonly number[]
  /** It looks at the name, the tags, the metadata or the groups of clients. */
  usesClients: boolean
}

export type CompiledRule = CompiledDefinition & {
  key: number
  id: string
  name: string
  userKey: number
  /** Nothing before it is for the rule. */
  place: Place
  definition: RuleDefinition
}

export const DEFAULT_TYPE = 'application/json'

/** Actions that look at a right on the channel of the message. */
const NEEDS_CHANNEL: ReadonlySet<CompiledAction['type']> = new Set(['start', 'mail', 'webhook'])

/** Throws `malformed`, which names the field; for an expression with line and column. */
export function compileDefinition(definition: RuleDefinition): CompiledDefinition {
  const { source, actions = [{ type: 'alarm' }] } = definition
  // Before what else these sources refuse or require.
  if (definition.condition_task !== undefined && source.type !== 'messages')
    throw refusedField('/condition_task', `must be absent: a function decides about messages, not about ${source.type}`)
  const silence = silenceOf(definition)
  const schedule = scheduleOf(definition)
  const condition = conditionOf(definition)
  const clearWhen =
    definition.clear_when === undefined || definition.clear_when === ''
      ? undefined
      : compileExpression(definition.clear_when, 'boolean', '/clear_when')
  const compiled = actions.map((action, index) => compileAction(action, `/actions/${index}`))
  const escalations = escalationsOf(compiled)
  const templates = compiled.flatMap(templatesOf)
  const texts = [definition.condition, definition.clear_when, ...templates.map((one) => one?.source)]
  const state = stateOf(definition, [condition, clearWhen], texts)
  requireOfSeries(schedule, { '/condition': condition, '/clear_when': clearWhen })
  const isWithoutSeries = schedule?.isOverSeries === false
  const watches = silence !== undefined || state !== undefined
  const windows = [condition, clearWhen, ...templates].flatMap((one): readonly WindowRequest[] => one?.windows ?? [])
  if ((watches || isWithoutSeries) && windows.length > 0)
    throw refusedField(
      state !== undefined && windowsIn([condition, clearWhen]) ? '/condition' : '/actions',
      `must not have windows: ${source.type} has no series${isWithoutSeries ? ' without `names` in `source`' : ''}`,
    )
  if (definition.condition_task !== undefined && windows.length > 0)
    throw refusedField('/actions', 'must not have windows: they would be those of the time when the function returns')
  const needing = compiled.findIndex(({ type }) => NEEDS_CHANNEL.has(type))
  if ((watches || isWithoutSeries) && needing !== -1 && source.channels?.length !== 1)
    throw refusedField(
      `/actions/${needing}`,
      'requires exactly one channel in `source`: the rule needs the right to read it',
    )
  return {
    filter: {
      channels: source.channels,
      subtopic: subtopicOf(source.subtopic),
      names: source.names,
      clients: source.clients,
      groups: source.groups,
      tags: source.tags,
    },
    silence,
    state,
    schedule,
    condition,
    conditionTask: definition.condition_task,
    clearWhen,
    timing: {
      forMs: durationOf(definition.for, '/for', MAX_HOLD_MS),
      clearForMs: durationOf(definition.clear_for, '/clear_for', MAX_HOLD_MS),
      cooldownMs: durationOf(definition.cooldown, '/cooldown', MAX_COOLDOWN_MS),
    },
    severity: definition.severity ?? 'warning',
    windowTime: definition.window_time ?? 'arrival',
    windowMs: windows.reduce((longest, { durationMs }) => Math.max(longest, durationMs ?? MAX_WINDOW_MS), 0),
    windowNames: windows.flatMap(({ series }) => series ?? []),
    actions: compiled,
    escalations,
    usesClients:
      watches ||
      schedule?.isOverSeries === true ||
      source.groups !== undefined ||
      source.tags !== undefined ||
      texts.some((text) => /\bclient\b/.test(text ?? '')),
  }
}

/** Nothing else may be given with silence: a message ends it. */
function silenceOf(definition: RuleDefinition): SilenceTimes | undefined {
  const { source } = definition
  if (source.type !== 'silence') {
    for (const field of ['after', 'share'] as const)
      if (source[field] !== undefined) throw refusedField(`/source/${field}`, 'must be absent: it is of silence')
    return undefined
  }
  if (definition.condition !== '') throw refusedField('/condition', 'must be absent: silence has no condition')
  if ((definition.clear_when ?? '') !== '') throw refusedField('/clear_when', 'must be absent: a message ends silence')
  for (const field of ['for', 'clear_for'] as const)
    if (durationOf(definition[field], `/${field}`, MAX_HOLD_MS) > 0)
      throw refusedField(`/${field}`, 'must be absent: silence has `after`, and a message ends it')
  if (source.after === undefined) throw refusedField('/source/after', 'is required: a duration such as 15m')
  const afterMs = Math.round(parseDurationMs(source.after, '/source/after'))
  if (!(afterMs >= MIN_SILENCE_MS && afterMs <= MAX_SILENCE_MS))
    throw refusedField('/source/after', 'must be between 5s and 720h')
  return { afterMs, share: source.share ?? DEFAULT_SHARE }
}

const windowsIn = (expressions: readonly (Expression | undefined)[]): boolean =>
  expressions.some((one) => (one?.windows.length ?? 0) > 0)

const OF_STATE: ReadonlySet<string> = new Set(STATE_VARIABLES)
/** What else the conditions of rules about state can look at. */
const STATE_AND_CLIENT: ReadonlySet<string> = new Set([...STATE_VARIABLES, 'client', 'time', 'name'])
const DOCUMENTS = /\b(?:desired|reported|delta)\b/

/** `texts` are all expressions, and the texts of actions. */
function stateOf(
  { source }: RuleDefinition,
  conditions: readonly (Expression | undefined)[],
  texts: readonly (string | undefined)[],
): StateSource | undefined {
  const names = conditions.map((one) => [...(one?.variables ?? [])])
  const paths = ['/condition', '/clear_when']
  const refused =
    source.type === 'state' ? (name: string) => !STATE_AND_CLIENT.has(name) : (name: string) => OF_STATE.has(name)
  for (const [index, variables] of names.entries()) {
    const found = variables.find(refused)
    if (found !== undefined)
      throw refusedField(
        paths[index] ?? '',
        source.type === 'state'
          ? `must not have ${found}: the state of a client has ${[...STATE_AND_CLIENT].join(', ')}`
          : `must not have ${found}: it is of rules with the source state`,
      )
  }
  if (source.type !== 'state') {
    if (source.document !== undefined) throw refusedField('/source/document', 'must be absent: it is of state')
    return undefined
  }
  for (const field of ['subtopic', 'names'] as const)
    if (source[field] !== undefined) throw refusedField(`/source/${field}`, 'must be absent: it is of messages')
  const all = new Set(names.flat())
  const followsDocument = ['desired', 'reported', 'delta'].some((name) => all.has(name))
  const followsConnection = all.has('online')
  if (!followsDocument && !followsConnection)
    throw refusedField('/condition', `must look at ${STATE_VARIABLES.join(', ')}: it is evaluated when they change`)
  return {
    document: documentOf(source.document),
    followsDocument,
    followsConnection,
    readsDocuments: texts.some((text) => DOCUMENTS.test(text ?? '')),
  }
}

/** Empty: the document without a name. */
function documentOf(name: string | undefined): string {
  if (name === undefined || name === '') return ''
  try {
    return parseStateName(name)
  } catch (error) {
    throw refusedField('/source/document', (error as Error).message.replace(/^name /, ''))
  }
}

/** What alarms show as the condition of silence is a sentence. */
function conditionOf(definition: RuleDefinition): Expression {
  const { source, condition } = definition
  if (definition.condition_task !== undefined) return decidedByTask(definition)
  if (source.type === 'silence')
    return { ...compileExpression('false', 'boolean'), source: `no message for ${source.after}` }
  if (source.type === 'schedule' && condition === '') return { ...compileExpression('true', 'boolean'), source: '' }
  if (condition === '') throw refusedField('/condition', 'is required: an expression such as value > 30.0')
  return compileExpression(condition, 'boolean', '/condition')
}

/** Its function says what raises and what clears. */
function decidedByTask({ condition, clear_when: clearWhen = '' }: RuleDefinition): Expression {
  if (condition !== '') throw refusedField('/condition', 'must be absent: the function of `condition_task` decides')
  if (clearWhen !== '')
    throw refusedField('/clear_when', 'must be absent: the function of `condition_task` decides also what clears')
  return { ...compileExpression('false', 'boolean'), source: 'decided by a task' }
}

export function compileRule(rule: StoredRule): CompiledRule {
  const { key, id, name, userKey, place, definition } = rule
  return { ...compileDefinition(definition), key, id, name, userKey, place, definition }
}

function templatesOf(action: CompiledAction): (Template | undefined)[] {
  switch (action.type) {
    case 'alarm':
      return [action.text]
    case 'publish':
    case 'webhook':
      return [action.payload]
    case 'mail':
      return [action.subject, action.text]
    case 'start':
      return []
  }
}

/** An empty template is none. */
const textTemplate = (text: string | undefined, path: string): Template | undefined =>
  text === undefined || text === '' ? undefined : compileTextTemplate(text, path)

function whenOf({ on, after }: { on?: readonly Moment[]; after?: string }, path: string): When {
  const moments = new Set<Moment>(on ?? ['raise'])
  const isEscalation = moments.has('escalate')
  if (after === undefined || after === '') {
    if (isEscalation) throw refusedField(`${path}/after`, 'is required with `escalate`: a duration such as 15m')
    return { on: moments, afterMs: undefined }
  }
  if (!isEscalation) throw refusedField(`${path}/after`, 'must be absent: it is of `escalate` in `on`')
  const afterMs = Math.round(parseDurationMs(after, `${path}/after`))
  if (!(afterMs >= MIN_ESCALATION_MS && afterMs <= MAX_ESCALATION_MS))
    throw refusedField(`${path}/after`, 'must be between 1m and 168h')
  return { on: moments, afterMs }
}

/** Who acknowledges has an alarm before them. */
function escalationsOf(actions: readonly CompiledAction[]): readonly number[] {
  const times = actions.map((action) => (action.type === 'alarm' ? undefined : action.afterMs))
  const first = times.findIndex((afterMs) => afterMs !== undefined)
  if (first !== -1 && !actions.some(({ type }) => type === 'alarm'))
    throw refusedField(`/actions/${first}/on`, 'must not have `escalate`: the rule has no `alarm` action')
  return [...new Set(times.flatMap((afterMs) => afterMs ?? []))].toSorted((one, other) => one - other)
}

function compileAction(action: RuleAction, path: string): CompiledAction {
  switch (action.type) {
    case 'alarm':
      return { type: 'alarm', text: textTemplate(action.text, `${path}/text`) }
    case 'publish': {
      const contentType = action.content_type ?? DEFAULT_TYPE
      const compile = /[/+]json$/.test(contentType) ? compileJsonTemplate : compileTextTemplate
      if (action.content_type !== undefined && action.payload === undefined)
        throw refusedField(`${path}/content_type`, 'is that of `payload`, which is absent')
      return {
        type: 'publish',
        channelId: action.channel,
        subtopic: plainSubtopic(action.subtopic ?? '', `${path}/subtopic`),
        payload: action.payload === undefined ? undefined : compile(action.payload, `${path}/payload`),
        contentType,
        ...whenOf(action, path),
      }
    }
    case 'start':
      return { type: 'start', taskId: action.task, ...whenOf(action, path) }
    case 'mail':
      return {
        type: 'mail',
        to: action.to,
        subject: textTemplate(action.subject, `${path}/subject`),
        text: textTemplate(action.text, `${path}/text`),
        ...whenOf(action, path),
      }
    case 'webhook': {
      const { url, payload } = action
      return {
        type: 'webhook',
        url,
        payload: payload === undefined || payload === '' ? undefined : compileJsonTemplate(payload, `${path}/payload`),
        ...whenOf(action, path),
      }
    }
  }
}

/** Undefined: every subtopic. */
function subtopicOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  try {
    const filter = parseSubtopicFilter(text)
    return filter === EVERY_SUBTOPIC ? undefined : filter
  } catch (error) {
    throw refusedField('/source/subtopic', (error as Error).message.replace(/^the subtopic /, ''))
  }
}

function plainSubtopic(text: string, path: string): string {
  try {
    return parseSubtopic(text)
  } catch (error) {
    throw refusedField(path, (error as Error).message.replace(/^the subtopic /, ''))
  }
}

function durationOf(text: string | undefined, path: string, maxMs: number): number {
  if (text === undefined || text === '') return 0
  const ms = Math.round(parseDurationMs(text, path))
  if (ms >= 0 && ms <= maxMs) return ms
  throw refusedField(path, `must be between 0s and ${formatDurationMs(maxMs)}`)
}
