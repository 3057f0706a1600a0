import { expect, test } from 'vitest'
import { addressesOf } from './addresses.ts'

const listeners = { mqttPort: 1884, mqttsPort: 8884, coapPort: 5684, grpcPort: 7171, ownNames: [] }
const unset = { mqttPublicUrl: undefined, coapPublicUrl: undefined, grpcPublicAddress: undefined }
const here = 'http://127.0.0.1:8080'

test('addresses have the host of the public URL and the ports of the listeners', () => {
  expect(addressesOf({ ...unset, publicUrl: 'https://skein.example.com', listeners }, here)).toEqual({
    http: { url: 'https://skein.example.com' },
    mqtt: { url: 'mqtt://skein.example.com:1884' },
    mqtts: {
      url: 'mqtts://skein.example.com:8884',
      ca_url: 'https://skein.example.com/certs/download-ca?format=pem',
    },
    mqtt_websocket: { url: 'wss://skein.example.com/mqtt' },
    coap: { url: 'coap://skein.example.com:5684' },
    workers: { address: 'skein.example.com:7171' },
  })
})

test('a certificate of the operator needs no authority', () => {
  const given = { ...listeners, ownNames: undefined }
  expect(addressesOf({ ...unset, publicUrl: 'https://skein.example.com', listeners: given }, here).mqtts).toEqual({
    url: 'mqtts://skein.example.com:8884',
  })
})

test('what the operator set comes first, and with it the listener behind a proxy is not shown', () => {
  const set = {
    mqttPublicUrl: 'mqtts://mqtt.example.com',
    coapPublicUrl: 'coap://coap.example.com:5700',
    grpcPublicAddress: 'workers.example.com:443',
  }
  expect(addressesOf({ ...set, publicUrl: 'https://skein.example.com', listeners }, here)).toEqual({
    http: { url: 'https://skein.example.com' },
    mqtts: { url: 'mqtts://mqtt.example.com' },
    mqtt_websocket: { url: 'wss://skein.example.com/mqtt' },
    coap: { url: 'coap://coap.example.com:5700' },
    workers: { address: 'workers.example.com:443' },
  })
  const plain = { ...set, mqttPublicUrl: 'mqtt://mqtt.example.com:2883' }
  expect(addressesOf({ ...plain, publicUrl: here, listeners }, here)).toMatchObject({
    mqtt: { url: 'mqtt://mqtt.example.com:2883' },
  })
})

test('a balancer that passes TLS on shows the own authority, one that ends it does not', () => {
  const set = { ...unset, publicUrl: 'https://skein.example.com' }
  const mqttsOf = (host: string, more: object) =>
    addressesOf({ ...set, mqttPublicUrl: `mqtts://${host}:8883`, listeners: { ...listeners, ...more } }, here).mqtts
  const authority = 'https://skein.example.com/certs/download-ca?format=pem'
  expect(mqttsOf('skein.example.com', {})?.ca_url).toBe(authority)
  expect(mqttsOf('mqtt.example.com', { ownNames: ['mqtt.example.com'] })?.ca_url).toBe(authority)
  expect(mqttsOf('mqtt.example.com', {})?.ca_url).toBeUndefined()
  expect(mqttsOf('skein.example.com', { mqttsPort: 0 })?.ca_url).toBeUndefined()
  expect(mqttsOf('skein.example.com', { ownNames: undefined })?.ca_url).toBeUndefined()
})

test('a listener that is off is absent', () => {
  const off = { ...listeners, mqttPort: 0, mqttsPort: 0, coapPort: 0, grpcPort: 0 }
  expect(addressesOf({ ...unset, publicUrl: here, listeners: off }, here)).toEqual({
    http: { url: here },
    mqtt_websocket: { url: 'ws://127.0.0.1:8080/mqtt' },
  })
})

test('a caller of another machine gets the host that it used, where the public URL leads to this machine alone', () => {
  const found = addressesOf({ ...unset, publicUrl: here, listeners }, 'http://192.168.0.7:8080')
  expect(found.http.url).toBe('http://192.168.0.7:8080')
  expect(found.mqtt?.url).toBe('mqtt://192.168.0.7:1884')
  expect(addressesOf({ ...unset, publicUrl: here, listeners }, 'http://[fd00::7]:8080').coap?.url).toBe(
    'coap://[fd00::7]:5684',
  )
  for (const wrong of ['http://a b', 'http://', 'http://$(id)', 'http://a/b'])
    expect(addressesOf({ ...unset, publicUrl: here, listeners }, wrong).http.url).toBe(here)
})
