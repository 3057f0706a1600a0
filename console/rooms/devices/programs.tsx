/** Programs that publish as one client to one channel; a button puts the secret into them. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../../api/queries.ts'
import { Button, Code, Segments } from '../../design/controls.tsx'
import { Notice } from '../../design/display.tsx'
import { useAction } from '../../shell/action.ts'
import { QueryView } from '../../shell/states.tsx'
import { useClientDenied } from '../../shell/permissions.ts'
import { fetchSecret } from './secret.ts'
import { snippetsFor } from './snippets.ts'

const LOOPBACK = /^https?:\/\/(?:127\.|localhost[:/]?|\[::1\])/

export function Programs({ domain, client, channel }: { domain: string; client: string; channel: string }) {
  const addresses = useQuery({ ...query('GET /connect'), staleTime: Infinity })
  const cannotSee = useClientDenied(domain, client)('update')
  const [chosen, setChosen] = useState('curl')
  const [secret, setSecret] = useState<string>()
  const [include, isAsking] = useAction('The secret is not included', async () => {
    setSecret(await fetchSecret(domain, client))
  })
  return (
    // Nothing is shown before the answer: a command that is copied at once must work.
    <QueryView result={addresses}>
      {(known) => {
        const snippets = snippetsFor({ domain, client, channel, secret }, known)
        const shown = snippets.find(({ name }) => name === chosen) ?? snippets[0]
        if (shown === undefined) return null
        return (
          <div className="stack mid">
            <Segments
              label="Program"
              value={shown.name}
              onChange={setChosen}
              options={snippets.map(({ name }): [string, string] => [name, name])}
            />
            <div className="row wrap spread">
              <span className="muted">{shown.hint}</span>
              {secret === undefined ? (
                <Button icon="eye" busy={isAsking} disabledReason={cannotSee} onClick={() => void include()}>
                  Include the secret
                </Button>
              ) : (
                <Button icon="eye" onClick={() => setSecret(undefined)}>
                  Hide the secret
                </Button>
              )}
            </div>
            <Code label={shown.name} text={shown.text} />
            {secret === undefined ? (
              <p className="muted small">
                Without the secret, the commands read it from the variable <code>SECRET</code>, and programs of devices
                have the word <code>SECRET</code> in its place.
              </p>
            ) : null}
            {LOOPBACK.test(known.http.url) ? (
              <Notice tone="plain">
                These addresses lead to this machine alone. For a device elsewhere, open the console with the name or
                the address of this machine in the network, or set <code>SKEIN_PUBLIC_URL</code>.
              </Notice>
            ) : null}
          </div>
        )
      }}
    </QueryView>
  )
}
