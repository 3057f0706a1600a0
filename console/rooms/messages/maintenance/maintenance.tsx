/** Maintenance windows of a domain: planned times in which rules raise alarms and notify nobody. */
import { useEffect, useState } from 'react'
import { call } from '../../../api/call.ts'
import type { MaintenanceWindow } from '../../../api/operations.ts'
import { Button, Segments, TextField } from '../../../design/controls.tsx'
import { Card, Empty, State, Time } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { useFormAction } from '../../../shell/action.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { EntityChoice } from '../../../shell/entity-choice.tsx'
import { Filters } from '../../../shell/filters.tsx'
import { useDomainDenied } from '../../../shell/permissions.ts'
import { BROWSER_ZONE } from '../../../shell/local-time.ts'
import { ScheduleFields } from '../../../shell/schedule-fields.tsx'
import { DataTable } from '../../../shell/table.tsx'
import type { Column } from '../../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../../shell/url.ts'
import { ClientScopeFields } from '../client-scope.tsx'
import { bodyOf, formOf, lackOf, scopeText, standingOf } from './form.ts'
import type { WindowForm } from './form.ts'

const OPERATION = 'GET /{domain_id}/maintenance-windows'
const REFRESH_MS = 5_000
const REPEATS = [
  ['once', 'Once'],
  ['repeated', 'Repeated'],
] as const

type Opened = { kind: 'edit' | 'delete'; window: MaintenanceWindow }

export function Maintenance() {
  const domain = useDomainId()
  const denied = useDomainDenied(domain)
  const [views, setViews] = useViews()
  const [creating, setCreating] = useView('create')
  const [opened, setOpened] = useState<Opened>()
  const params = { domain_id: domain }
  const filters = { name: views['name'] }
  const cannotCreate = denied('rule_create')
  useEffect(() => {
    document.title = 'Maintenance · Skein'
  }, [])
  const close = () => setOpened(undefined)
  const create = (
    <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setCreating('1')}>
      Plan maintenance
    </Button>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Maintenance</h1>
        {create}
      </div>
      <Filters fields={[]} />
      <DataTable<MaintenanceWindow>
        label="Maintenance windows"
        queryKey={[OPERATION, params, filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call(OPERATION, { params, query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.maintenance_windows }
        }}
        rowId={({ id }) => id}
        columns={columnsOf({ denied, onOpen: setOpened })}
        empty={
          <Card>
            {filters.name === undefined ? (
              <Empty icon="alarm" title="No maintenance is planned" actions={create}>
                In a maintenance window, rules raise alarms and neither send mails nor call webhooks. What still holds
                at its end is sent then.
              </Empty>
            ) : (
              <Empty
                icon="search"
                title="No maintenance matches"
                actions={<Button onClick={() => setViews({ name: '' })}>Clear the filter</Button>}
              />
            )}
          </Card>
        }
      />
      {creating === '' || cannotCreate !== undefined ? null : (
        <Edit domain={domain} window={undefined} onClose={() => setCreating('')} />
      )}
      {opened?.kind === 'edit' ? <Edit domain={domain} window={opened.window} onClose={close} /> : null}
      {opened?.kind === 'delete' ? <Remove domain={domain} window={opened.window} onClose={close} /> : null}
    </>
  )
}

const columnsOf = ({
  denied,
  onOpen,
}: {
  denied: ReturnType<typeof useDomainDenied>
  onOpen: (opened: Opened) => void
}): readonly Column<MaintenanceWindow>[] => [
  {
    key: 'name',
    title: 'Name',
    width: 'minmax(110px, 2fr)',
    cell: ({ name, description }) => (
      <span className="main clip" dir="auto" title={description}>
        {name}
      </span>
    ),
  },
  { key: 'state', title: 'State', width: '140px', cell: (window) => <Standing window={window} /> },
  {
    key: 'when',
    title: 'Ends, or starts next',
    width: '140px',
    isMinor: true,
    cell: ({ active_until: until, next_at: next }) =>
      until === undefined && next === undefined ? (
        <span className="muted">never</span>
      ) : (
        <Time at={until ?? next} isAhead />
      ),
  },
  {
    key: 'scope',
    title: 'About',
    width: 'minmax(120px, 2fr)',
    isMinor: true,
    cell: (window) => (
      <span className="clip" dir="auto" title={scopeText(window)}>
        {scopeText(window)}
      </span>
    ),
  },
  {
    key: 'actions',
    title: '',
    width: '90px',
    cell: (window) => (
      <span className="row">
        <Button
          small
          kind="quiet"
          icon="settings"
          label={`Edit ${window.name}`}
          disabledReason={denied('rule_update')}
          onClick={() => onOpen({ kind: 'edit', window })}
        />
        <Button
          small
          kind="quiet"
          icon="trash"
          label={`Delete ${window.name}`}
          disabledReason={denied('rule_delete')}
          onClick={() => onOpen({ kind: 'delete', window })}
        />
      </span>
    ),
  },
]

function Standing({ window }: { window: MaintenanceWindow }) {
  const { tone, text } = standingOf(window)
  return <State tone={tone}>{text}</State>
}

type Given<W> = { domain: string; window: W; onClose: () => void }

function Edit({ domain, window, onClose }: Given<MaintenanceWindow | undefined>) {
  const [form, setForm] = useState(() => formOf(window, BROWSER_ZONE))
  const save = useFormAction(
    'The maintenance was not saved',
    async () => {
      const params = { domain_id: domain }
      const body = bodyOf(form)
      if (window === undefined) await call('POST /{domain_id}/maintenance-windows', { params, body })
      else
        await call('PATCH /{domain_id}/maintenance-windows/{window_id}', {
          params: { ...params, window_id: window.id },
          body,
        })
      return window === undefined ? 'Planned' : 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog
      title={window === undefined ? 'Plan maintenance' : 'Edit maintenance'}
      submit={window === undefined ? 'Plan' : 'Save'}
      action={save}
      onClose={onClose}
      disabledReason={lackOf(form)}
    >
      <WindowFields domain={domain} form={form} onChange={setForm} />
    </FormDialog>
  )
}

function WindowFields({
  domain,
  form,
  onChange,
}: {
  domain: string
  form: WindowForm
  onChange: (form: WindowForm) => void
}) {
  const set = (changes: Partial<WindowForm>) => onChange({ ...form, ...changes })
  return (
    <>
      <TextField label="Name" field="name" value={form.name} onChange={(name) => set({ name })} required />
      <TextField
        label="Description"
        field="description"
        value={form.description}
        onChange={(description) => set({ description })}
      />
      <Segments
        label="How often"
        value={form.isRepeated ? 'repeated' : 'once'}
        options={REPEATS}
        onChange={(value) => set({ isRepeated: value === 'repeated' })}
      />
      <TimeFields form={form} set={set} />
      <EntityChoice
        type="rule"
        domain={domain}
        chosen={form.rules}
        onChange={(rules) => set({ rules })}
        hint="None: all rules"
      />
      <ClientScopeFields domain={domain} scope={form} onChange={set} />
    </>
  )
}

function TimeFields({ form, set }: { form: WindowForm; set: (changes: Partial<WindowForm>) => void }) {
  return (
    <>
      {form.isRepeated ? (
        <>
          <ScheduleFields
            isRequired
            form={form.schedule}
            onChange={(schedule) => set({ schedule })}
            timezone={form.timezone}
            onTimezone={(timezone) => set({ timezone })}
          />
          <TextField
            label="Lasts"
            field="duration"
            value={form.duration}
            onChange={(duration) => set({ duration })}
            placeholder="2h"
            hint="From 1m to 720h, and less than from one start to the next"
            required
          />
        </>
      ) : null}
      <TextField
        label={form.isRepeated ? 'Not before' : 'From'}
        field="starts_at"
        type="datetime-local"
        step={1}
        required={!form.isRepeated}
        value={form.startsAt}
        onChange={(startsAt) => set({ startsAt })}
      />
      <TextField
        label={form.isRepeated ? 'Not after' : 'Until'}
        field="ends_at"
        type="datetime-local"
        step={1}
        required={!form.isRepeated}
        value={form.endsAt}
        onChange={(endsAt) => set({ endsAt })}
        hint={`In the time zone of this browser, ${BROWSER_ZONE}`}
      />
    </>
  )
}

function Remove({ domain, window, onClose }: Given<MaintenanceWindow>) {
  const remove = useFormAction(
    'The maintenance was not deleted',
    async () => {
      const params = { domain_id: domain, window_id: window.id }
      await call('DELETE /{domain_id}/maintenance-windows/{window_id}', { params })
      return 'Deleted'
    },
    onClose,
  )
  return (
    <Confirm title={`Delete ${window.name}`} submit="Delete" action={remove} onClose={onClose}>
      What it silences and still holds is sent to the contacts of its rules at once.
    </Confirm>
  )
}
