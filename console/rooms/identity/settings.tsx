/** Settings of a domain. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Domain } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Id, TextField } from '../../design/controls.tsx'
import { Card, Facts, State, Time, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { PageForm } from '../../shell/page-form.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { splitTags } from '../../shell/tags.ts'
import { QueryView } from '../../shell/states.tsx'
import { Quotas } from './quotas.tsx'
import { AlarmRetentionField, RetentionField, retentionOf } from '../../shell/retention.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId } from '../../shell/url.ts'

export function Settings() {
  const domain = useDomainId()
  const result = useQuery(query('GET /domains/{domain_id}', { params: { domain_id: domain } }))
  useEffect(() => {
    document.title = 'Settings · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      <QueryView result={result} entity={`domain:${domain}`}>
        {(record) => (
          <div className="grid">
            <div className="half">
              <General key={record.id} domain={record} />
            </div>
            <div className="half stack wide">
              <Usage domain={domain} />
              <Life domain={record} />
            </div>
          </div>
        )}
      </QueryView>
    </>
  )
}

function General({ domain }: { domain: Domain }) {
  const cannotUpdate = useDomainDenied(domain.id)('update')
  const [name, setName] = useState(domain.name)
  const [alias, setAlias] = useState(domain.alias)
  const [tags, setTags] = useState(domain.tags.join(', '))
  const [days, setDays] = useState(domain.retention_days === undefined ? '' : String(domain.retention_days))
  const [alarmDays, setAlarmDays] = useState(String(domain.alarm_retention_days ?? ''))
  const save = useFormAction('The settings were not saved', async () => {
    await call('PATCH /domains/{domain_id}', {
      params: { domain_id: domain.id },
      body: {
        name: name.trim(),
        ...(alias.trim() === domain.alias ? {} : { alias: alias.trim() }),
        tags: splitTags(tags),
        retention_days: retentionOf(days),
        alarm_retention_days: retentionOf(alarmDays),
      },
    })
    return 'Saved'
  })
  return (
    <Card title="General">
      <PageForm action={save} className="form" disabledReason={cannotUpdate}>
        <TextField label="Name" field="name" value={name} onChange={setName} required />
        <TextField label="Alias" field="alias" value={alias} onChange={setAlias} hint="A short name in addresses" />
        <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas" />
        <RetentionField value={days} onChange={setDays} none="Kept, unless the channel says otherwise" />
        <AlarmRetentionField value={alarmDays} onChange={setAlarmDays} />
        <div className="row">
          <Button type="submit" kind="primary" busy={save.isBusy} disabledReason={cannotUpdate}>
            Save
          </Button>
        </div>
      </PageForm>
      <Facts
        rows={[
          ['Id', <Id key="id" id={domain.id} />],
          ['Created', <Time key="created" at={domain.created_at} />],
        ]}
      />
    </Card>
  )
}

function Usage({ domain }: { domain: string }) {
  const result = useQuery(query('GET /domains/{domain_id}/usage', { params: { domain_id: domain } }))
  return (
    <Card title="Usage and quotas">
      <QueryView result={result} entity={`domain:${domain}`}>
        {({ messages, records, quotas }) => (
          <>
            <Facts
              rows={[
                ['Messages taken in', formatCount(messages)],
                ['Records taken in', formatCount(records)],
              ]}
            />
            <Quotas quotas={quotas} />
          </>
        )}
      </QueryView>
    </Card>
  )
}

function Life({ domain }: { domain: Domain }) {
  const denied = useDomainDenied(domain.id)
  const navigate = useNavigate()
  const [asking, setAsking] = useState<'disable' | 'delete'>()
  const params = { domain_id: domain.id }
  const [enable, isEnabling] = useAction('The domain was not enabled', async () => {
    await call('POST /domains/{domain_id}/enable', { params })
    return 'Enabled'
  })
  const disable = useFormAction('The domain was not disabled', async () => {
    await call('POST /domains/{domain_id}/disable', { params })
    setAsking(undefined)
    return 'Disabled'
  })
  const remove = useFormAction('The domain was not deleted', async () => {
    await call('DELETE /domains/{domain_id}', { params })
    await navigate({ to: paths.home() })
    return 'The domain is deleted. For 30 days its administrator can enable it again.'
  })
  const isEnabled = domain.status === 'enabled'
  return (
    <Card title="Life">
      <div className="row wrap">
        <State tone={isEnabled ? 'ok' : 'warn'}>{isEnabled ? 'Enabled' : domain.status}</State>
        <span className="grow" />
        {isEnabled ? (
          <Button disabledReason={denied('disable')} onClick={() => setAsking('disable')}>
            Disable
          </Button>
        ) : (
          <Button busy={isEnabling} disabledReason={denied('enable')} onClick={() => void enable()}>
            Enable
          </Button>
        )}
        <Button kind="danger" icon="trash" disabledReason={denied('delete')} onClick={() => setAsking('delete')}>
          Delete
        </Button>
      </div>
      {asking === 'disable' ? (
        <Confirm
          title={`Disable ${domain.name}`}
          submit="Disable domain"
          action={disable}
          onClose={() => setAsking(undefined)}
        >
          Its devices are disconnected and its members cannot use it until an administrator enables it.
        </Confirm>
      ) : null}
      {asking === 'delete' ? (
        <Confirm
          title={`Delete ${domain.name}`}
          submit="Delete domain"
          typed={domain.name}
          action={remove}
          onClose={() => setAsking(undefined)}
        >
          Everything in it stops at once and is deleted after 30 days.
        </Confirm>
      ) : null}
    </Card>
  )
}
