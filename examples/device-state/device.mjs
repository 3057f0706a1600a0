// A device that becomes what it should be: it applies the difference that it receives, and reports what it is then.
//
//   SKEIN_MQTT_URL=mqtt://127.0.0.1:1883 SKEIN_DOMAIN=… SKEIN_CLIENT=… SKEIN_SECRET=… node device.mjs
//
// It requires the package mqtt.
import mqtt from 'mqtt'

const { SKEIN_MQTT_URL, SKEIN_DOMAIN, SKEIN_CLIENT, SKEIN_SECRET } = process.env
const [desired, reported] = ['desired', 'reported'].map((side) => `c/${SKEIN_DOMAIN}/state/${side}`)

let state = { firmware: '1.3', led: { on: false } }
let newest = 0

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** JSON merge patch (RFC 7396). */
function merge(target, patch) {
  const merged = new Map(isObject(target) ? Object.entries(target) : [])
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name)
    else merged.set(name, isObject(value) ? merge(merged.get(name), value) : value)
  }
  return Object.fromEntries(merged)
}

const client = mqtt.connect(SKEIN_MQTT_URL, { username: SKEIN_CLIENT, password: SKEIN_SECRET })
client.on('connect', () => {
  client.subscribe(desired, { qos: 1 })
  // Everything that it is, once for each connection. Later reports are what changed.
  client.publish(reported, JSON.stringify(state), { qos: 1 })
})
client.on('message', (_topic, payload) => {
  const { version, delta } = JSON.parse(payload)
  // Versions only grow: an older difference was replaced.
  if (version <= newest) return
  newest = version
  state = merge(state, delta)
  console.log(JSON.stringify(state))
  client.publish(reported, JSON.stringify(delta), { qos: 1 })
})
