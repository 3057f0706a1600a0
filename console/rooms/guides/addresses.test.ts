import { expect, test } from 'vitest'
import { withAddresses } from './addresses.ts'

const addresses = {
  http: { url: 'https://skein.example.com' },
  mqtt: { url: 'mqtt://skein.example.com:11883' },
  mqtts: { url: 'mqtts://mqtt.example.com' },
  coap: { url: 'coap://skein.example.com:5683' },
  workers: { address: 'workers.example.com:7071' },
}

test.each([
  ['BASE=http://127.0.0.1:8080', 'BASE=https://skein.example.com'],
  ['curl http://127.0.0.1:7070/tasks', 'curl https://skein.example.com/tasks'],
  ['new WebSocket("ws://127.0.0.1:8080/x")', 'new WebSocket("wss://skein.example.com/x")'],
  ['mqtt://127.0.0.1:1883', 'mqtt://skein.example.com:11883'],
  ['coap-client coap://127.0.0.1:5683/m', 'coap-client coap://skein.example.com:5683/m'],
  ['mosquitto_pub -h localhost -p 8883 -t x', 'mosquitto_pub -h mqtt.example.com -p 8883 -t x'],
  ['--manager HOST:7071', '--manager workers.example.com:7071'],
  ['http://127.0.0.1:16686', 'http://127.0.0.1:16686'],
])('%s', (text, own) => {
  expect(withAddresses(text, 'https://skein.example.com', addresses)).toBe(own)
})

test('an address that is not known stays as the guide has it', () => {
  expect(withAddresses('mqtt://127.0.0.1:1883 HOST:7071', 'http://a', {})).toBe('mqtt://127.0.0.1:1883 HOST:7071')
})
