/** What the forms of a rule make of their fields. Pure. */
import type { Rule, RuleCreate } from '../../../api/operations.ts'
import type { Tone } from '../../../design/display.tsx'
import { cronOf, formOf as scheduleFormOf } from '../../../shell/schedule-form.ts'
import type { ScheduleForm } from '../../../shell/schedule-form.ts'

type Source = Rule['source']
export type Action = Rule['actions'][number]
export type ActionType = Action['type']
type PublishAction = Extract<Action, { type: 'publish' }>
export type Moment = NonNullable<PublishAction['on']>[number]

export const MOMENTS: readonly (readonly [Moment, string])[] = [
  ['raise', 'when it begins to hold'],
  ['repeat', 'at each further message or time'],
  ['clear', 'when it ends'],
  ['escalate', 'when nobody acknowledges its alarm for some time'],
]

export const ACTION_TYPES: readonly (readonly [ActionType, string])[] = [
  ['alarm', 'Raise an alarm'],
  ['publish', 'Publish a message'],
  ['start', 'Start a task'],
  ['mail', 'Send a mail'],
  ['webhook', 'Call a webhook'],
]

export const SOURCE_TYPES: readonly (readonly [Source['type'], string])[] = [
  ['messages', 'Messages'],
  ['silence', 'Silence: no message of a client'],
  ['state', 'The state of clients: documents and connections'],
  ['schedule', 'A schedule: at certain times'],
]

export const WINDOW_TIMES: readonly (readonly [Rule['window_time'], string])[] = [
  ['arrival', 'the arrival of messages'],
  ['message', 'the time in the message'],
]

/** The fields of one action, as texts; those of another type are empty. */
export type ActionForm = {
  type: ActionType
  text: string
  channel: string
  subtopic: string
  payload: string
  contentType: string
  task: string
  to: string
  subject: string
  url: string
  on: readonly Moment[]
  /** Of `escalate`. */
  after: string
}

/** The fields of both forms, as texts. */
export type RuleForm = {
  name: string
  description: string
  sourceType: Source['type']
  channels: readonly string[]
  subtopic: string
  names: string
  clients: readonly string[]
  groups: readonly string[]
  tags: string
  document: string
  after: string
  share: string
  schedule: ScheduleForm
  timezone: string
  /** A time that was missed is caught up once. */
  catchesUp: boolean
  condition: string
  /** Id of the task that decides instead; empty: none. */
  conditionTask: string
  hold: string
  clearWhen: string
  clearHold: string
  cooldown: string
  severity: Rule['severity']
  windowTime: Rule['window_time']
  actions: readonly ActionForm[]
}

const NO_ACTION: ActionForm = {
  type: 'alarm',
  text: '',
  channel: '',
  subtopic: '',
  payload: '',
  contentType: '',
  task: '',
  to: '',
  subject: '',
  url: '',
  on: ['raise'],
  after: '',
}

/** A rule has one alarm at most. */
export const newAction = (others: readonly ActionForm[]): ActionForm => ({
  ...NO_ACTION,
  type: others.some(({ type }) => type === 'alarm') ? 'publish' : 'alarm',
})

const whenFormOf = ({ on, after }: Pick<PublishAction, 'on' | 'after'>) => ({
  on: on ?? NO_ACTION.on,
  after: after ?? '',
})

function actionFormOf(action: Action): ActionForm {
  switch (action.type) {
    case 'alarm':
      return { ...NO_ACTION, text: action.text ?? '' }
    case 'publish':
      return {
        ...NO_ACTION,
        type: 'publish',
        channel: action.channel,
        subtopic: action.subtopic ?? '',
        payload: action.payload ?? '',
        contentType: action.content_type ?? '',
        ...whenFormOf(action),
      }
    case 'start':
      return { ...NO_ACTION, type: 'start', task: action.task, ...whenFormOf(action) }
    case 'mail':
      return {
        ...NO_ACTION,
        type: 'mail',
        to: action.to.join(', '),
        subject: action.subject ?? '',
        text: action.text ?? '',
        ...whenFormOf(action),
      }
    case 'webhook':
      return {
        ...NO_ACTION,
        type: 'webhook',
        url: action.url,
        payload: action.payload ?? '',
        ...whenFormOf(action),
      }
  }
}

/** Each day at 06:00, until a person says something else. */
const DAILY = '0 6 * * *'
const ZERO = '0s'
const durationText = (text: string | undefined) => (text === undefined || text === ZERO ? '' : text)
const listText = (values: readonly string[] | undefined) => (values ?? []).join(', ')

/** `zone`: that of the browser. */
export const formOf = (rule: Rule | undefined, zone: string): RuleForm => ({
  name: rule?.name ?? '',
  description: rule?.description ?? '',
  sourceType: rule?.source.type ?? 'messages',
  channels: rule?.source.channels ?? [],
  subtopic: rule?.source.subtopic ?? '',
  names: listText(rule?.source.names),
  clients: rule?.source.clients ?? [],
  groups: rule?.source.groups ?? [],
  tags: listText(rule?.source.tags),
  document: rule?.source.document ?? '',
  after: rule?.source.after ?? '',
  share: rule?.source.share === undefined ? '' : String(rule.source.share * 100),
  schedule: scheduleFormOf(rule?.source.schedule ?? DAILY),
  timezone: zoneOf(rule, zone),
  catchesUp: rule?.source.catch_up === 'once',
  condition: rule?.condition ?? '',
  conditionTask: rule?.condition_task ?? '',
  hold: durationText(rule?.for),
  clearWhen: rule?.clear_when ?? '',
  clearHold: durationText(rule?.clear_for),
  cooldown: durationText(rule?.cooldown),
  severity: rule?.severity ?? 'warning',
  windowTime: rule?.window_time ?? 'arrival',
  actions: (rule?.actions ?? [{ type: 'alarm' as const }]).map(actionFormOf),
})

/** A stored schedule without a zone is in UTC. */
const zoneOf = (rule: Rule | undefined, zone: string) =>
  rule?.source.type === 'schedule' ? (rule.source.timezone ?? 'UTC') : zone

const listOf = (text: string) =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '')

function sourceOf(form: RuleForm): Source {
  const ofMessages = form.sourceType !== 'state'
  const names = ofMessages ? listOf(form.names) : []
  // A schedule without names looks at no series.
  const ofSeries = form.sourceType !== 'schedule' || names.length > 0
  const subtopic = ofMessages && ofSeries ? form.subtopic.trim() : ''
  const document = ofMessages ? '' : form.document.trim()
  const { channels, clients, groups } = form
  const chosen = ofSeries ? { clients, groups, tags: listOf(form.tags) } : {}
  const lists = { channels, names, ...chosen }
  return {
    type: form.sourceType,
    ...Object.fromEntries(Object.entries(lists).filter(([, values]) => values.length > 0)),
    ...(subtopic === '' ? {} : { subtopic }),
    ...(document === '' ? {} : { document }),
    ...(form.sourceType === 'silence' ? silenceOf(form) : {}),
    ...(form.sourceType === 'schedule' ? timesOf(form) : {}),
  }
}

const silenceOf = ({ after, share }: RuleForm) => ({
  after: after.trim(),
  ...(share.trim() === '' ? {} : { share: Number(share) / 100 }),
})

const timesOf = ({ schedule, timezone, catchesUp }: RuleForm) => ({
  schedule: cronOf(schedule),
  timezone: timezone.trim(),
  ...(catchesUp ? { catch_up: 'once' as const } : {}),
})

const whenOf = ({ on, after }: ActionForm) => ({
  on: [...on],
  ...(on.includes('escalate') ? { after: after.trim() } : {}),
})

function actionOf(form: ActionForm): Action {
  const { type, text, channel, subtopic, payload, contentType, task, to, subject, url } = form
  switch (type) {
    case 'alarm':
      return { type, ...(text.trim() === '' ? {} : { text }) }
    case 'publish':
      return {
        type,
        channel,
        ...(subtopic.trim() === '' ? {} : { subtopic: subtopic.trim() }),
        ...(payload.trim() === '' ? {} : { payload }),
        ...(contentType.trim() === '' ? {} : { content_type: contentType.trim() }),
        ...whenOf(form),
      }
    case 'start':
      return { type, task, ...whenOf(form) }
    case 'mail':
      return {
        type,
        to: listOf(to),
        ...(subject.trim() === '' ? {} : { subject }),
        ...(text.trim() === '' ? {} : { text }),
        ...whenOf(form),
      }
    case 'webhook':
      return { type, url: url.trim(), ...(payload.trim() === '' ? {} : { payload }), ...whenOf(form) }
  }
}

const durationOf = (text: string) => (text.trim() === '' ? ZERO : text.trim())

/** Whether it acts at each of its times, whatever the values are. */
export const isReport = ({ sourceType, names, condition }: RuleForm): boolean =>
  sourceType === 'schedule' && (listOf(names).length === 0 || condition.trim() === '')

/** A task decides about messages alone. */
export const isDecidedByTask = ({ sourceType, conditionTask }: RuleForm): boolean =>
  sourceType === 'messages' && conditionTask !== ''

/** What ends silence is a message: it has no condition. */
const conditionOf = (form: RuleForm) =>
  form.sourceType === 'silence' || isReport(form)
    ? { condition: '', condition_task: '', for: ZERO, clear_when: '', clear_for: ZERO }
    : {
        ...(isDecidedByTask(form)
          ? { condition: '', condition_task: form.conditionTask, clear_when: '' }
          : {
              condition: form.condition,
              condition_task: '',
              clear_when: form.clearWhen.trim() === '' ? '' : form.clearWhen,
            }),
        for: durationOf(form.hold),
        clear_for: durationOf(form.clearHold),
      }

/** All of it: what is empty in the form of a rule that exists is taken away from it. */
export const bodyOf = (form: RuleForm) =>
  ({
    name: form.name.trim(),
    description: form.description.trim(),
    source: sourceOf(form),
    ...conditionOf(form),
    cooldown: isReport(form) ? ZERO : durationOf(form.cooldown),
    severity: form.severity,
    window_time: form.windowTime,
    actions: form.actions.map(actionOf),
  }) satisfies RuleCreate

/** What is missing before it can be sent: a choice has no field of its own that the browser requires. */
export function lackOf(form: RuleForm): string | undefined {
  const { actions } = form
  if (form.sourceType === 'schedule' && cronOf(form.schedule) === '') return 'Say when it is evaluated first'
  if (actions.length === 0) return 'Add an action first'
  if (isReport(form) && actions.some(({ type }) => type === 'alarm'))
    return 'An alarm needs names and a condition: remove it, or choose another action'
  if (actions.some(({ type, channel }) => type === 'publish' && channel === '')) return 'Choose the channel first'
  if (actions.some(({ type, task }) => type === 'start' && task === '')) return 'Choose the task first'
  if (actions.some(({ type, to }) => type === 'mail' && listOf(to).length === 0)) return 'Give an address first'
  if (actions.some(({ type, url }) => type === 'webhook' && url.trim() === '')) return 'Give the URL first'
  if (actions.some(({ type, on }) => type !== 'alarm' && on.length === 0)) return 'Choose when the action acts first'
  return undefined
}

/** What a list shows of it. */
export const conditionText = ({
  condition,
  condition_task: task,
  source,
  named,
}: Pick<Rule, 'condition' | 'condition_task' | 'source' | 'named'>): string => {
  if (source.type === 'silence') return `no message for ${source.after}`
  if (task !== undefined) return `decided by the task ${named.find(({ id }) => id === task)?.name ?? task}`
  return condition === '' ? `at ${source.schedule}` : condition
}

export function standingOf({ status, paused, last_error: error }: Rule): { tone: Tone; text: string } {
  if (status !== 'enabled') return { tone: 'idle', text: 'Disabled' }
  if (paused !== undefined) return { tone: 'bad', text: 'Paused' }
  return error === undefined ? { tone: 'ok', text: 'Enabled' } : { tone: 'warn', text: 'Enabled, with errors' }
}
