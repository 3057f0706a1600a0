/** One device in one call: a client, its channels, their connections, and what the device fetches at its first start. */
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { shownBase } from '../../api/base.ts'
import { call } from '../../api/call.ts'
import type { Mapping } from '../../api/operations.ts'
import { Button, Code } from '../../design/controls.tsx'
import { Card, Notice, State } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { PageForm } from '../../shell/page-form.tsx'
import { useFormAction } from '../../shell/action.ts'
import { useDomainId } from '../../shell/url.ts'
import { WaitingForOtherOwner } from '../../shell/waiting.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { DeviceIdentityFields, identityBody, newDeviceIdentity, newKey } from './device-identity.tsx'

export function Provisioning() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('client_create')
  const [identity, setIdentity] = useState(newDeviceIdentity)
  const [made, setMade] = useState<{ externalId: string; mapping: Mapping }>()
  useEffect(() => {
    document.title = 'Provisioning · Skein'
  }, [])
  const create = useFormAction('The device was not created', async () => {
    const mapping = (await call('POST /{domain_id}/mapping', {
      params: { domain_id: domain },
      body: identityBody(identity),
    })) as Mapping
    setMade({ externalId: identity.externalId.trim(), mapping })
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
          <DeviceIdentityFields identity={identity} onChange={setIdentity} />
          <div className="row wrap">
            <Button kind="primary" type="submit" busy={create.isBusy} disabledReason={cannotCreate}>
              Create device
            </Button>
            <Button icon="refresh" onClick={() => setIdentity({ ...identity, externalKey: newKey() })}>
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
