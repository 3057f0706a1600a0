/**
 * A device that carries out commands over HTTP: `add` and `reboot`; it rejects others.
 *
 *     SKEIN_URL=http://127.0.0.1:8080 SKEIN_DOMAIN=… SKEIN_SECRET=… node device.mjs
 *
 * It needs Node.js 20 or later, and no packages.
 */
import { setTimeout as sleep } from 'node:timers/promises'

const { SKEIN_URL: url, SKEIN_DOMAIN: domain, SKEIN_SECRET: secret } = process.env
const BASE = `${url}/c/${domain}/commands`
const RETRY_MS = 1000

/** A command is delivered again until its answer has arrived. A device that must not do it twice stores this on its disk. */
const answers = new Map()

function carryOut(name, payload) {
  switch (name) {
    case 'add':
      return { status: 'succeeded', result: payload.a + payload.b }
    case 'reboot':
      return { status: 'succeeded' }
    default:
      return { status: 'rejected', reason: `this device knows no ${name}` }
  }
}

async function call(path, body) {
  const response = await fetch(BASE + path, {
    headers: { authorization: `Client ${secret}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(90_000),
  })
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  return await response.json()
}

for (;;) {
  try {
    const { commands } = await call('?wait=60s')
    for (const { id, name, payload } of commands) {
      if (!answers.has(id)) {
        try {
          answers.set(id, carryOut(name, payload))
        } catch (error) {
          answers.set(id, { status: 'failed', reason: String(error.message).slice(0, 500) })
        }
      }
      await call(`/${id}/result`, answers.get(id))
      console.log(name, answers.get(id).status)
    }
  } catch (error) {
    console.error(`${error.message}; trying again`)
    await sleep(RETRY_MS)
  }
}
