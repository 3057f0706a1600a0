/** Fields of the forms of a rule. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../../../api/queries.ts'
import { Button, Check, SelectField, TextArea, TextField } from '../../../design/controls.tsx'
import { EntityChoice } from '../../../shell/entity-choice.tsx'
import { ScheduleFields } from '../../../shell/schedule-fields.tsx'
import { SEVERITIES, SEVERITY_WORDS } from '../alarms/words.ts'
import type { Severity } from '../alarms/words.ts'
import { ClientScopeFields } from '../client-scope.tsx'
import { ACTION_TYPES, MOMENTS, SOURCE_TYPES, WINDOW_TIMES, isDecidedByTask, newAction } from './form.ts'
import type { ActionForm, ActionType, RuleForm } from './form.ts'

/** Channels or tasks that one page of the choice shows. */
const MAX_OFFERED = 100
const MAX_ACTIONS = 10

type Fields = { domain: string; form: RuleForm; onChange: (form: RuleForm) => void }
type Part = { form: RuleForm; set: (changes: Partial<RuleForm>) => void }

export function RuleFields({ domain, form, onChange }: Fields) {
  const set = (changes: Partial<RuleForm>) => onChange({ ...form, ...changes })
  return (
    <>
      <TextField label="Name" field="name" value={form.name} onChange={(name) => set({ name })} required />
      <TextField
        label="Description"
        field="description"
        value={form.description}
        onChange={(description) => set({ description })}
      />
      <SelectField
        label="Watches"
        field="source.type"
        value={form.sourceType}
        onChange={(sourceType) => set({ sourceType: sourceType as RuleForm['sourceType'] })}
        options={SOURCE_TYPES}
      />
      {form.sourceType === 'silence' ? <SilenceFields form={form} set={set} /> : null}
      {form.sourceType === 'state' ? <StateFields form={form} set={set} /> : null}
      {form.sourceType === 'schedule' ? <TimeFields form={form} set={set} /> : null}
      <EntityChoice
        type="channel"
        domain={domain}
        field="source.channels"
        hint={CHANNEL_HINTS[form.sourceType]}
        chosen={form.channels}
        onChange={(channels) => set({ channels })}
      />
      {form.sourceType === 'state' ? null : <MessageFields form={form} set={set} />}
      <ClientScopeFields domain={domain} path="source." scope={form} onChange={set} />
      {form.sourceType === 'messages' ? <DecidingTask domain={domain} form={form} set={set} /> : null}
      {form.sourceType === 'silence' ? null : <ConditionFields form={form} set={set} />}
      <AlarmFields form={form} set={set} />
      {form.actions.map((action, index) => (
        <ActionFields
          key={index}
          domain={domain}
          number={index + 1}
          action={action}
          onChange={(changes) => set({ actions: form.actions.with(index, { ...action, ...changes }) })}
          onRemove={() => set({ actions: form.actions.toSpliced(index, 1) })}
        />
      ))}
      <div className="row">
        <Button
          small
          icon="plus"
          disabledReason={form.actions.length < MAX_ACTIONS ? undefined : `A rule has at most ${MAX_ACTIONS} actions`}
          onClick={() => set({ actions: [...form.actions, newAction(form.actions)] })}
        >
          Add an action
        </Button>
      </div>
    </>
  )
}

const OF_CLIENTS = 'Only clients that may publish to one of these. None: all clients'
const CHANNEL_HINTS: Record<RuleForm['sourceType'], string> = {
  messages: 'None: all channels of the domain',
  silence: OF_CLIENTS,
  state: OF_CLIENTS,
  schedule: 'None: all channels of the domain. To start a task, to mail or to call a webhook without names needs one',
}

function TimeFields({ form, set }: Part) {
  return (
    <>
      <ScheduleFields
        isRequired
        form={form.schedule}
        onChange={(schedule) => set({ schedule })}
        timezone={form.timezone}
        onTimezone={(timezone) => set({ timezone })}
      />
      <Check checked={form.catchesUp} onChange={(catchesUp) => set({ catchesUp })}>
        Catch up once when a time was missed
      </Check>
    </>
  )
}

function SilenceFields({ form, set }: Part) {
  return (
    <>
      <TextField
        label="Silent after"
        field="source.after"
        value={form.after}
        onChange={(after) => set({ after })}
        placeholder="15m"
        hint="The time without a message, from 5s to 720h. Clients that never sent are silent too"
        required
      />
      <TextField
        label="One alarm above"
        field="source.share"
        value={form.share}
        onChange={(share) => set({ share })}
        placeholder="50"
        hint="Percent of the clients: more of them within a minute are one alarm. 100: each has its own. Empty: 50"
      />
    </>
  )
}

function StateFields({ form, set }: Part) {
  return (
    <TextField
      label="Document"
      field="source.document"
      value={form.document}
      onChange={(document) => set({ document })}
      placeholder="config"
      hint="The name of a state document of the clients. Empty: the one without a name"
    />
  )
}

function MessageFields({ form, set }: Part) {
  return (
    <>
      <TextField
        label="Names"
        field="source.names"
        value={form.names}
        onChange={(names) => set({ names })}
        placeholder="temperature, pressure"
        hint={`Of SenML records, separated by commas. Empty: ${form.sourceType === 'schedule' ? 'it looks at no values, and acts once at each time' : 'every record, and JSON objects'}`}
      />
      <TextField
        label="Subtopic"
        field="source.subtopic"
        value={form.subtopic}
        onChange={(subtopic) => set({ subtopic })}
        placeholder="hall-1/+/temperature"
        hint="+ is one element, # all that follow. Empty: all messages"
      />
    </>
  )
}

const CONDITION_HINTS: Record<RuleForm['sourceType'], string> = {
  messages: 'value > 30.0',
  silence: '',
  state: '!online, or has(delta.firmware)',
  schedule: 'mean("24h") > 26.0, which needs names. Empty: it acts at each time',
}

function ConditionFields({ form, set }: Part) {
  return (
    <>
      {isDecidedByTask(form) ? null : (
        <TextArea
          label="Condition"
          field="condition"
          rows={3}
          value={form.condition}
          onChange={(condition) => set({ condition })}
          hint={`An expression (CEL) that is true or false, such as ${CONDITION_HINTS[form.sourceType]}`}
        />
      )}
      <TextField
        label="Must hold for"
        field="for"
        value={form.hold}
        onChange={(hold) => set({ hold })}
        placeholder="2m"
        hint="Before the rule raises, at most 24h. Empty: it raises at once"
      />
      {isDecidedByTask(form) ? null : (
        <TextArea
          label="Clears when"
          field="clear_when"
          rows={2}
          value={form.clearWhen}
          onChange={(clearWhen) => set({ clearWhen })}
          hint={`An expression${form.sourceType === 'state' ? '' : ', such as value < 28.0'}. Empty: when the condition no longer holds`}
        />
      )}
      <TextField
        label="That must hold for"
        field="clear_for"
        value={form.clearHold}
        onChange={(clearHold) => set({ clearHold })}
        placeholder="1m"
        hint="Before the rule clears, at most 24h"
      />
      {form.sourceType === 'state' || isDecidedByTask(form) ? null : (
        <SelectField
          label="Windows are over"
          field="window_time"
          value={form.windowTime}
          onChange={(windowTime) => set({ windowTime: windowTime as RuleForm['windowTime'] })}
          options={WINDOW_TIMES}
        />
      )}
    </>
  )
}

function AlarmFields({ form, set }: Part) {
  return (
    <>
      <TextField
        label="Cooldown"
        field="cooldown"
        value={form.cooldown}
        onChange={(cooldown) => set({ cooldown })}
        placeholder="1h"
        hint="After it has cleared, it does not raise again for the same series during this time"
      />
      <SelectField
        label="Severity"
        field="severity"
        value={form.severity}
        onChange={(severity) => set({ severity: severity as Severity })}
        options={SEVERITIES.map((one) => [one, SEVERITY_WORDS[one][1]])}
      />
    </>
  )
}

type ActionProps = {
  domain: string
  number: number
  action: ActionForm
  onChange: (changes: Partial<ActionForm>) => void
}

function ActionFields({ onRemove, ...props }: ActionProps & { onRemove: () => void }) {
  const { number, action, onChange } = props
  return (
    <fieldset className="step-fields">
      <legend>Action {number}</legend>
      <div className="row top">
        <div className="grow">
          <SelectField
            label={`What action ${number} does`}
            field={`actions.${number - 1}`}
            value={action.type}
            onChange={(type) => onChange({ type: type as ActionType })}
            options={ACTION_TYPES}
          />
        </div>
        <Button kind="quiet" icon="trash" label={`Remove action ${number}`} onClick={onRemove} />
      </div>
      {action.type === 'alarm' ? (
        <TextField
          label="Text of the alarm"
          field={`actions.${number - 1}.text`}
          value={action.text}
          onChange={(text) => onChange({ text })}
          placeholder="{{ name }} is {{ value }}"
          hint="With expressions in {{ }}. Empty: the name of the rule"
        />
      ) : null}
      {action.type === 'publish' ? <PublishFields {...props} /> : null}
      {action.type === 'start' ? <TaskChoice {...props} /> : null}
      {action.type === 'mail' ? <MailFields {...props} /> : null}
      {action.type === 'webhook' ? <WebhookFields {...props} /> : null}
      {action.type === 'alarm' ? null : <Moments {...props} />}
    </fieldset>
  )
}

function Moments({ number, action, onChange }: ActionProps) {
  return (
    <div className="field" role="group" aria-label={`When action ${number} acts`}>
      <span>It acts</span>
      <div className="row wrap">
        {MOMENTS.map(([moment, words]) => (
          <Check
            key={moment}
            checked={action.on.includes(moment)}
            onChange={(isChosen) =>
              onChange({ on: isChosen ? [...action.on, moment] : action.on.filter((one) => one !== moment) })
            }
          >
            {words}
          </Check>
        ))}
      </div>
      {action.on.includes('escalate') ? (
        <TextField
          label="Not acknowledged for"
          field={`actions.${number - 1}.after`}
          value={action.after}
          onChange={(after) => onChange({ after })}
          placeholder="15m"
          hint="From 1m to 168h. It acts once for each alarm that is still open then. Several actions with different times are its steps"
          required
        />
      ) : null}
    </div>
  )
}

function PublishFields({ domain, number, action, onChange }: ActionProps) {
  const [name, setName] = useState('')
  const { data } = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: MAX_OFFERED, order: 'name', dir: 'asc', name: name.trim(), status: 'all' },
    }),
  )
  return (
    <>
      <OneOf
        label="Publishes to"
        field={`actions.${number - 1}.channel`}
        value={action.channel}
        offered={data?.channels ?? []}
        total={data?.total ?? 0}
        name={name}
        onName={setName}
        onChange={(channel) => onChange({ channel })}
      />
      <TextField
        label="Subtopic of the message"
        field={`actions.${number - 1}.subtopic`}
        value={action.subtopic}
        onChange={(subtopic) => onChange({ subtopic })}
      />
      <TextArea
        label="Payload"
        field={`actions.${number - 1}.payload`}
        rows={3}
        value={action.payload}
        onChange={(payload) => onChange({ payload })}
        hint="Text with expressions in {{ }}. Empty: a JSON object with the moment, the rule, the severity and the message"
      />
      <TextField
        label="Content type"
        field={`actions.${number - 1}.content_type`}
        value={action.contentType}
        onChange={(contentType) => onChange({ contentType })}
        placeholder="application/json"
      />
    </>
  )
}

function MailFields({ number, action, onChange }: ActionProps) {
  return (
    <>
      <TextField
        label="To"
        field={`actions.${number - 1}.to`}
        value={action.to}
        onChange={(to) => onChange({ to })}
        placeholder="ann@example.com, bob@example.com"
        hint="Addresses, separated by commas. One that is not of a member of the domain first gets a link to confirm it"
      />
      <TextField
        label="Subject"
        field={`actions.${number - 1}.subject`}
        value={action.subject}
        onChange={(subject) => onChange({ subject })}
        hint="With expressions in {{ }}. Empty: the severity, the moment and the text of the alarm"
      />
      <TextArea
        label="Text of the mail"
        field={`actions.${number - 1}.text`}
        rows={3}
        value={action.text}
        onChange={(text) => onChange({ text })}
        hint="With expressions in {{ }}. Empty: a description of what happened"
      />
    </>
  )
}

function WebhookFields({ number, action, onChange }: ActionProps) {
  return (
    <>
      <TextField
        label="URL"
        field={`actions.${number - 1}.url`}
        value={action.url}
        onChange={(url) => onChange({ url })}
        placeholder="https://hooks.example.com/skein"
        hint="Each user who may read rules sees it"
      />
      <TextArea
        label="JSON of the request"
        field={`actions.${number - 1}.payload`}
        rows={3}
        value={action.payload}
        onChange={(payload) => onChange({ payload })}
        hint='With expressions in {{ }} in its texts, such as {"text": "{{ client.name }} is at {{ value }}"} for Slack and Teams. Empty: an object with the moment, the rule, the severity and the message'
      />
    </>
  )
}

function TaskChoice({ domain, number, action, onChange }: ActionProps) {
  return (
    <OneTask
      domain={domain}
      label="Starts the task"
      field={`actions.${number - 1}.task`}
      value={action.task}
      none="Choose"
      onChange={(task) => onChange({ task })}
    />
  )
}

/** A function gets the messages, and returns true, false or a severity for each of them. */
function DecidingTask({ domain, form, set }: Part & { domain: string }) {
  return (
    <OneTask
      domain={domain}
      label="Decided by"
      field="condition_task"
      value={form.conditionTask}
      none="an expression"
      onChange={(conditionTask) => set({ conditionTask })}
    />
  )
}

function OneTask({
  domain,
  ...of
}: Pick<Parameters<typeof OneOf>[0], 'label' | 'field' | 'value' | 'none' | 'onChange'> & { domain: string }) {
  const [name, setName] = useState('')
  const { data } = useQuery(
    query('GET /tasks', {
      query: { domain_id: domain, limit: MAX_OFFERED, order: 'name', dir: 'asc', name: name.trim() },
    }),
  )
  return <OneOf {...of} offered={data?.tasks ?? []} total={data?.total ?? 0} name={name} onName={setName} />
}

/** One entity of a domain of any size: found by name where there are many. */
function OneOf({
  label,
  field,
  value,
  offered,
  total,
  name,
  onName,
  none = 'Choose',
  onChange,
}: {
  label: string
  field: string
  value: string
  offered: readonly { id: string; name: string }[]
  total: number
  name: string
  onName: (name: string) => void
  /** What is shown where none is chosen. */
  none?: string
  onChange: (id: string) => void
}) {
  const options = new Map([['', none]])
  for (const one of offered) options.set(one.id, one.name === '' ? one.id : one.name)
  if (!options.has(value)) options.set(value, value)
  return (
    <>
      {total > MAX_OFFERED || name !== '' ? (
        <TextField label={`${label}: find by name`} value={name} onChange={onName} />
      ) : null}
      <SelectField label={label} field={field} value={value} onChange={onChange} options={[...options]} />
    </>
  )
}
