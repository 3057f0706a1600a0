import { expect, test } from 'vitest'
import { formatOrigins, parseOrigins } from './http-form.ts'

test('lines are origins with their methods', () => {
  expect(parseOrigins(' get, POST  https://api.example.com \n\nhttps://other.example:8443\n')).toEqual([
    { origin: 'https://api.example.com', methods: ['GET', 'POST'] },
    { origin: 'https://other.example:8443' },
  ])
  expect(parseOrigins(' \n')).toEqual([])
})

test('what is shown is what is read', () => {
  const allow = [
    { origin: 'https://api.example.com', methods: ['GET', 'HEAD'] as ('GET' | 'HEAD')[] },
    { origin: 'https://b.example', methods: ['DELETE'] as 'DELETE'[] },
  ]
  expect(parseOrigins(formatOrigins(allow))).toEqual(allow)
})
