/** One device in one call: a client, its channels, their connections, and what the device fetches at its first start. */
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { shownBase } from '../../api/base.ts'
import { call } from '../../api/call.ts'
import type { Mapping } from '../../api/operations.ts'
import { Button, Code, TextField } from '../../design/controls.tsx'
import { Card, Notice, State } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { PageForm } from '../../shell/page-form.tsx'
import { useFormAction } from '../../shell/action.ts'
import { useDomainId } from '../../shell/url.ts'
import { WaitingForOtherOwner } from '../../shell/waiting.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'

const KEY_BYTES = 16

const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

export function Provisioning() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('client_create')
  const [name, setName] = useState('')
  const [externalId, setExternalId] = useState('')
  const [externalKey, setExternalKey] = useState(newKey)
  const [made, setMade] = useState<{ externalId: string; mapping: Mapping }>()
  useEffect(() => {
    document.title = 'Provisioning · Skein'
  }, [])
  const create = useFormAction('The device was not created', async () => {
    const mapping = (await call('POST /{domain_id}/mapping', {
      params: { domain_id: domain },
      body: {
        external_id: externalId.trim(),
        external_key: externalKey,
        ...(name.trim() === '' ? {} : { name: name.trim() }),
      },
    })) as Mapping
    setMade({ externalId: externalId.trim(), mapping })
    return 'The device is created'
  })
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Provisioning</h1>
        <Link className="button" to={paths.imports(domain)}>
          Import many
        </Link>
      </div>
      <Card title="New device">
        <PageForm action={create} className="stack" disabledReason={cannotCreate}>
          {cannotCreate === undefined ? null : <Notice tone="warn">{cannotCreate}.</Notice>}
          <TextField
            label="External id"
            field="external_id"
            value={externalId}
            onChange={setExternalId}
            required
            maxLength={1024}
            hint="What the device knows of itself, such as its serial number or MAC address"
          />
          <TextField
            label="External key"
            field="external_key"
            value={externalKey}
            onChange={setExternalKey}
            required
            maxLength={1024}
            autoComplete="off"
            hint="The device proves with it that it is the device. At least 16 characters."
          />
          <TextField label="Name" field="name" value={name} onChange={setName} maxLength={1024} hint="Optional" />
          <div className="row wrap">
            <Button kind="primary" type="submit" busy={create.isBusy} disabledReason={cannotCreate}>
              Create device
            </Button>
            <Button icon="refresh" onClick={() => setExternalKey(newKey())}>
              Another key
            </Button>
          </div>
        </PageForm>
      </Card>
      {made === undefined ? null : (
        <Made domain={domain} externalId={made.externalId} mapping={made.mapping} key={made.externalId} />
      )}
    </>
  )
}

function Made({ domain, externalId, mapping }: { domain: string; externalId: string; mapping: Mapping }) {
  const command = `curl -s ${shownBase}/clients/bootstrap/${encodeURIComponent(externalId)} \\
  -H "Authorization: Client $EXTERNAL_KEY"`
  return (
    <Card title={`Created for ${externalId}`}>
      <div className="stack">
        {mapping.clients.map(({ id, name, key }) => (
          <div key={id} className="stack">
            <div className="row wrap">
              <span>Client</span>
              <Link to={paths.client(domain, id)}>{name === '' ? id : name}</Link>
              {mapping.whitelisted[id] === undefined ? null : mapping.whitelisted[id] ? (
                <State tone="ok">Configuration active</State>
              ) : (
                <State tone="idle">Configuration inactive</State>
              )}
            </div>
            <Code label={`secret of ${name}`} text={key} />
            {mapping.whitelisted[id] === undefined ? null : <WaitingForOtherOwner domain={domain} client={id} />}
          </div>
        ))}
        <div className="row wrap">
          <span>Channels</span>
          {mapping.channels.map(({ id, name }) => (
            <Link key={id} to={paths.channel(domain, id)}>
              {name === '' ? id : name}
            </Link>
          ))}
        </div>
        <Notice tone="plain">The device fetches its configuration with its external id and key:</Notice>
        <Code label="command" text={command} />
      </div>
    </Card>
  )
}
