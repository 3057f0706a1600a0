/**
 * Runs before the console is there, which is most of the time of a first visit on a slow line: asks for the token, and loads the screen of
 * the address and its readings beside the frame. Whatever fails here is tried again, and reported, by the console itself.
 */
import { consoleBase } from './api/base.ts'
import { jsonOf } from './api/json.ts'
import { SESSION_HEADERS, TOKEN_PATH, prepare, watchSession } from './api/prepared.ts'
import { screenAt } from './screens.ts'

async function start(): Promise<void> {
  const found = screenAt(location.pathname.slice(consoleBase.pathname.length - 1))
  // The entrance needs neither a session nor a screen.
  if (found === undefined) return
  const { screen, parts } = found
  const isSameSession = watchSession()
  const response = await prepare(TOKEN_PATH, { method: 'POST', headers: SESSION_HEADERS }).response
  // Without a session, the next screen is the entrance.
  if (!response.ok) return
  for (const load of [screen.load, screen.first?.code]) load?.().catch(() => undefined)
  const { access_token: token } = (await jsonOf(response.clone())) as { access_token: string }
  // The token may be of another user than the one of the console.
  if (!isSameSession()) return
  const headers = { Accept: 'application/json', Authorization: `Bearer ${token}` }
  const { domain = '', id = '' } = parts
  for (const path of screen.first?.asks({ domain, id }, new URLSearchParams(location.search)) ?? [])
    prepare(path, { headers }).response.catch(() => undefined)
}

start().catch(() => undefined)
