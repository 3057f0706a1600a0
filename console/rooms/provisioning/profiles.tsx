/** Profiles: templates of the configurations that devices fetch. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { BootstrapConfigCreate, BootstrapProfile } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Check, Code, SelectField, TextArea, TextField } from '../../design/controls.tsx'
import { Card, Empty, Notice, Time, counted } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { InputError, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { Filters } from '../../shell/filters.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { DataTable } from '../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../shell/url.ts'
import { DeviceIdentityFields, identityBody, newDeviceIdentity } from './device-identity.tsx'
import { FORMATS, bodyOf, formOf, parseValues } from './profile-form.ts'
import type { ProfileForm, Slot } from './profile-form.ts'

const SHOWN_CHANNELS = 100

type Opened = { kind: 'edit' | 'preview' | 'enrol' | 'delete'; profile: BootstrapProfile }

export function Profiles() {
  const domain = useDomainId()
  const denied = useDomainDenied(domain)
  const [views, setViews] = useViews()
  const [creating, setCreating] = useView('create')
  const [opened, setOpened] = useState<Opened>()
  const params = { domain_id: domain }
  const filters = { name: views['name'] }
  useEffect(() => {
    document.title = 'Profiles · Skein'
  }, [])
  const close = () => setOpened(undefined)
  const create = (
    <Button kind="primary" icon="plus" disabledReason={denied('profile_create')} onClick={() => setCreating('1')}>
      New profile
    </Button>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Profiles</h1>
        {create}
      </div>
      <Filters fields={[]} />
      <DataTable<BootstrapProfile>
        label="Profiles"
        queryKey={['GET /{domain_id}/clients/bootstrap/profiles', params, filters]}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /{domain_id}/clients/bootstrap/profiles', {
            params,
            query: { ...filters, ...page },
            signal,
          })
          return { total: found.total, rows: found.profiles }
        }}
        rowId={({ id }) => id}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(100px, 2fr)',
            cell: (profile) => (
              <span className="main clip" dir="auto" title={profile.description}>
                {profile.name}
              </span>
            ),
          },
          { key: 'format', title: 'Format', width: '110px', isMinor: true, cell: ({ content_format: one }) => one },
          {
            key: 'slots',
            title: 'Slots',
            width: 'minmax(100px, 1fr)',
            isMinor: true,
            cell: ({ binding_slots: slots }) =>
              slots.length === 0 ? <span className="muted">none</span> : slots.map(({ name }) => name).join(', '),
          },
          { key: 'version', title: 'Version', width: '70px', isMinor: true, cell: ({ version }) => version },
          {
            key: 'changed',
            title: 'Changed',
            width: '110px',
            isMinor: true,
            cell: ({ updated_at: at }) => <Time at={at} />,
          },
          {
            key: 'actions',
            title: '',
            width: '190px',
            cell: (profile) => {
              const open = (kind: Opened['kind']) => () => setOpened({ kind, profile })
              return (
                <span className="row">
                  <Button small disabledReason={denied('client_create')} onClick={open('enrol')}>
                    Enrol
                  </Button>
                  <Button small kind="quiet" icon="eye" label={`Preview ${profile.name}`} onClick={open('preview')} />
                  <Button
                    small
                    kind="quiet"
                    icon="settings"
                    label={`Edit ${profile.name}`}
                    disabledReason={denied('profile_update')}
                    onClick={open('edit')}
                  />
                  <Button
                    small
                    kind="quiet"
                    icon="trash"
                    label={`Delete ${profile.name}`}
                    disabledReason={denied('profile_delete')}
                    onClick={open('delete')}
                  />
                </span>
              )
            },
          },
        ]}
        empty={
          <Card>
            {filters.name === undefined ? (
              <Empty icon="provisioning" title="No profiles yet" actions={create}>
                A profile is a template of the configurations of many devices, which differ in few values.
              </Empty>
            ) : (
              <Empty
                icon="search"
                title="No profile matches"
                actions={<Button onClick={() => setViews({ name: '' })}>Clear the filter</Button>}
              />
            )}
          </Card>
        }
      />
      {creating === '' || denied('profile_create') !== undefined ? null : (
        <Edit domain={domain} onClose={() => setCreating('')} />
      )}
      {opened?.kind === 'edit' ? <Edit domain={domain} profile={opened.profile} onClose={close} /> : null}
      {opened?.kind === 'preview' ? <Preview domain={domain} profile={opened.profile} onClose={close} /> : null}
      {opened?.kind === 'enrol' ? <Enrol domain={domain} profile={opened.profile} onClose={close} /> : null}
      {opened?.kind === 'delete' ? <Remove domain={domain} profile={opened.profile} onClose={close} /> : null}
    </>
  )
}

/** The values of a field as JSON; a text that is none is a fault of the field. */
function valuesOf(field: string, text: string): Record<string, unknown> {
  try {
    return parseValues(text)
  } catch (error) {
    throw new InputError(field, (error as Error).message)
  }
}

function Edit({
  domain,
  profile,
  onClose,
}: {
  domain: string
  /** Undefined: a new one. */
  profile?: BootstrapProfile
  onClose: () => void
}) {
  const [form, setForm] = useState<ProfileForm>(() => formOf(profile))
  const change = (fields: Partial<ProfileForm>) => setForm({ ...form, ...fields })
  const save = useFormAction(
    profile === undefined ? 'The profile was not created' : 'The profile was not changed',
    async () => {
      valuesOf('defaults', form.defaults)
      const body = bodyOf(form, profile)
      const params = { domain_id: domain }
      if (profile === undefined) await call('POST /{domain_id}/clients/bootstrap/profiles', { params, body })
      else
        await call('PATCH /{domain_id}/clients/bootstrap/profiles/{profile_id}', {
          params: { ...params, profile_id: profile.id },
          body,
        })
      return profile === undefined ? 'The profile is created' : 'Saved: devices get it with their next request'
    },
    onClose,
  )
  return (
    <FormDialog
      title={profile === undefined ? 'New profile' : `Profile ${profile.name}`}
      kind="wide"
      submit={profile === undefined ? 'Create profile' : 'Save'}
      action={save}
      onClose={onClose}
    >
      <TextField
        label="Name"
        field="name"
        value={form.name}
        onChange={(name) => change({ name })}
        autoFocus
        required
        maxLength={1024}
      />
      <TextField
        label="Description"
        field="description"
        value={form.description}
        onChange={(description) => change({ description })}
        maxLength={1024}
      />
      <SelectField
        label="The device receives"
        field="content_format"
        value={form.format}
        onChange={(format) => change({ format: format as ProfileForm['format'] })}
        options={FORMATS.map(([value, text]): [string, string] => [value, text])}
      />
      <TextArea
        label="Template"
        field="content_template"
        rows={10}
        value={form.template}
        onChange={(template) => change({ template })}
        hint="With .Device, .Vars and .Bindings. No secrets: those of clients are read at each request of the device"
      />
      <TextArea
        label="Default values of .Vars, as JSON"
        field="defaults"
        rows={4}
        value={form.defaults}
        onChange={(defaults) => change({ defaults })}
      />
      <Slots slots={form.slots} onChange={(slots) => change({ slots })} />
    </FormDialog>
  )
}

function Slots({ slots, onChange }: { slots: readonly Slot[]; onChange: (slots: readonly Slot[]) => void }) {
  const changed = (index: number, fields: Partial<Slot>) =>
    slots.map((slot, at) => (at === index ? { ...slot, ...fields } : slot))
  return (
    <fieldset className="stack">
      <legend>Slots: clients and channels of a device, as .Bindings.name</legend>
      {slots.map((slot, index) => (
        <div key={index} className="row wrap">
          <TextField
            label={`Slot ${index + 1}`}
            field={`binding_slots.${index}.name`}
            value={slot.name}
            onChange={(name) => onChange(changed(index, { name }))}
            required
          />
          <SelectField
            label={`Type of slot ${index + 1}`}
            value={slot.type}
            onChange={(type) => onChange(changed(index, { type: type as Slot['type'] }))}
            options={[
              ['client', 'a client'],
              ['channel', 'a channel'],
            ]}
          />
          <Check
            checked={slot.required === true}
            onChange={(required) => onChange(changed(index, { required }))}
          >{`Slot ${index + 1} is required`}</Check>
          <Button
            small
            kind="quiet"
            icon="close"
            label={`Remove slot ${index + 1}`}
            onClick={() => onChange(slots.toSpliced(index, 1))}
          />
        </div>
      ))}
      <div className="row">
        <Button small icon="plus" onClick={() => onChange([...slots, { name: '', type: 'channel', required: false }])}>
          Add a slot
        </Button>
      </div>
    </fieldset>
  )
}

/** Renders a profile with example values, before a device depends on it. */
function Preview({ domain, profile, onClose }: { domain: string; profile: BootstrapProfile; onClose: () => void }) {
  const [values, setValues] = useState('{}')
  const [content, setContent] = useState<string>()
  const render = useFormAction('The profile cannot be rendered', async () => {
    setContent(undefined)
    const bindings = profile.binding_slots.map(({ name, type }) => ({
      slot: name,
      type,
      snapshot: { id: `<id of ${name}>`, name: `<name of ${name}>`, topic: `<topic of ${name}>`, identity: '' },
      ...(type === 'client' ? { secret_snapshot: { secret: `<secret of ${name}>` } } : {}),
    }))
    const rendered = await call('POST /{domain_id}/clients/bootstrap/profiles/{profile_id}/render-preview', {
      params: { domain_id: domain, profile_id: profile.id },
      body: { render_context: valuesOf('render_context', values), bindings },
    })
    setContent(rendered.content)
  })
  return (
    <FormDialog title={`Preview of ${profile.name}`} kind="wide" submit="Render" action={render} onClose={onClose}>
      <TextArea
        label="Values of .Vars, as JSON"
        field="render_context"
        rows={4}
        value={values}
        onChange={setValues}
        hint="The defaults of the profile are used for values that are not here. Slots have example values."
      />
      {content === undefined ? null : <Code label="configuration" wrap text={content} />}
    </FormDialog>
  )
}

type Binding = NonNullable<BootstrapConfigCreate['bindings']>[number]

/** A device that gets its configuration from the profile. */
function Enrol({ domain, profile, onClose }: { domain: string; profile: BootstrapProfile; onClose: () => void }) {
  const [identity, setIdentity] = useState(newDeviceIdentity)
  const [values, setValues] = useState('{}')
  const [bound, setBound] = useState<Readonly<Record<string, string>>>({})
  const [isDone, setDone] = useState(false)
  const channels = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: SHOWN_CHANNELS, order: 'name', dir: 'asc' },
    }),
  )
  const listed = channels.data?.channels ?? []
  const ofChannels = profile.binding_slots.filter(({ type }) => type === 'channel')
  const missing = ofChannels.find((slot) => slot.required === true && (bound[slot.name] ?? '') === '')
  const enrol = useFormAction('The device was not enrolled', async () => {
    const bindings = profile.binding_slots.flatMap(({ name: slot, type }): Binding[] => {
      // A client slot is the client of the device itself.
      if (type === 'client') return [{ slot, type }]
      const channel = bound[slot] ?? ''
      return channel === '' ? [] : [{ slot, type, resource_id: channel }]
    })
    await call('POST /{domain_id}/clients/configs', {
      params: { domain_id: domain },
      body: {
        ...identityBody(identity),
        profile_id: profile.id,
        render_context: valuesOf('render_context', values),
        channels: [...new Set(Object.values(bound).filter((id) => id !== ''))],
        ...(bindings.length === 0 ? {} : { bindings }),
        status: 'enabled',
      },
    })
    setDone(true)
    return 'The device is enrolled'
  })
  return (
    <FormDialog
      title={`Enrol a device with ${profile.name}`}
      kind="wide"
      submit="Enrol device"
      action={enrol}
      onClose={onClose}
      disabledReason={
        isDone ? 'The device is enrolled' : missing === undefined ? undefined : `Choose a channel for ${missing.name}`
      }
    >
      <DeviceIdentityFields identity={identity} onChange={setIdentity} autoFocus />
      {ofChannels.map((slot) => (
        <SelectField
          key={slot.name}
          label={`Channel of ${slot.name}`}
          field="bindings"
          value={bound[slot.name] ?? ''}
          onChange={(channel) => setBound({ ...bound, [slot.name]: channel })}
          options={[
            ['', slot.required === true ? 'Choose a channel' : 'None'],
            ...listed.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
          ]}
          {...((channels.data?.total ?? 0) > SHOWN_CHANNELS
            ? { hint: `The first ${SHOWN_CHANNELS} channels by name` }
            : {})}
        />
      ))}
      <TextArea
        label="Values of .Vars, as JSON"
        field="render_context"
        rows={4}
        value={values}
        onChange={setValues}
        hint="Those of this device; the profile has defaults for others"
      />
      {isDone ? (
        <div role="status">
          <Notice tone="ok" actions={<Link to={paths.clients(domain)}>Show the clients</Link>}>
            The device fetches its configuration with this id and key, which is not shown again:
            <Code label="external key" text={identity.externalKey} />
          </Notice>
        </div>
      ) : null}
    </FormDialog>
  )
}

function Remove({ domain, profile, onClose }: { domain: string; profile: BootstrapProfile; onClose: () => void }) {
  const remove = useFormAction(
    'The profile was not deleted',
    async () => {
      await call('DELETE /{domain_id}/clients/bootstrap/profiles/{profile_id}', {
        params: { domain_id: domain, profile_id: profile.id },
      })
      return 'The profile is deleted'
    },
    onClose,
  )
  return (
    <Confirm title={`Delete ${profile.name}`} submit="Delete profile" action={remove} onClose={onClose}>
      A profile with {counted(profile.binding_slots.length, 'slot')} that devices use is not deleted. This cannot be
      undone.
    </Confirm>
  )
}
