/** What this page asked the API for, as commands for a shell. */
import { useState, useSyncExternalStore } from 'react'
import { shownBase } from '../api/base.ts'
import { asCli, asCurl } from '../api/commands.ts'
import { onRequests, sentRequests } from '../api/requests.ts'
import { Code, Segments } from '../design/controls.tsx'
import { Dialog } from '../design/layers.tsx'

export function RequestsDrawer({ onClose }: { onClose: () => void }) {
  const requests = useSyncExternalStore(onRequests, sentRequests)
  const [kind, setKind] = useState<'curl' | 'cli'>('curl')
  return (
    <Dialog title="This page as commands" kind="drawer" onClose={onClose}>
      <div className="row spread wrap">
        <Segments
          label="Command"
          value={kind}
          options={[
            ['curl', 'curl'],
            ['cli', 'skein'],
          ]}
          onChange={setKind}
        />
        <span className="muted small">newest first</span>
      </div>
      <p className="muted">
        {kind === 'curl' ? (
          <>
            Get a token with <code>TOKEN=$(skein token)</code> after <code>skein login --url {shownBase}</code>.
          </>
        ) : (
          <>
            After <code>skein login --url {shownBase}</code>.
          </>
        )}
      </p>
      {requests.length === 0 ? <p className="muted">This page has asked the API for nothing of its own.</p> : null}
      {requests.map((request) => (
        <Code
          key={request.id}
          label={`${request.method} /${request.path.split('?', 1)[0]}`}
          wrap
          text={kind === 'curl' ? asCurl(request) : (asCli(request) ?? asCurl(request))}
        />
      ))}
    </Dialog>
  )
}
