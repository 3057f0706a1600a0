import { expect, test } from 'vitest'
import type { BootstrapProfile } from '../../api/operations.ts'
import { bodyOf, formOf, parseValues } from './profile-form.ts'

const STORED: BootstrapProfile = {
  id: '7f3c1b1e-8f0e-4b57-9f2a-1f6f2f1f0c11',
  domain_id: '7f3c1b1e-8f0e-4b57-9f2a-1f6f2f1f0c12',
  name: 'gateway',
  description: '',
  content_format: 'go-template',
  template_format: 'go-template',
  content_type: 'application/json',
  content_template: '{{.Vars.broker}}',
  defaults: { serial: 9_007_199_254_740_993n },
  binding_slots: [{ name: 'device', type: 'client', required: true, fields: ['id'] }],
  version: 3,
  created_at: '2026-01-01T00:00:00Z',
  updated_at: '2026-01-01T00:00:00Z',
}

test('a profile that is saved as it is stays as it is, with its content type and the notes of its slots', () => {
  const { name, description, content_format, content_type, content_template, defaults, binding_slots } = STORED
  expect(bodyOf(formOf(STORED), STORED)).toEqual({
    name,
    description,
    content_format,
    content_type,
    content_template,
    defaults,
    binding_slots,
  })
})

test('another format has its own content type', () => {
  expect(bodyOf({ ...formOf(STORED), format: 'yaml' }, STORED).content_type).toBe('application/yaml')
  expect(bodyOf({ ...formOf(undefined), name: ' new ' }, undefined)).toMatchObject({
    name: 'new',
    content_type: 'application/json',
    defaults: { broker: 'mqtts://broker.example.com:8883' },
  })
})

test.each(['[1]', '"text"', '1', 'null'])('values that are no object are refused: %s', (text) => {
  expect(() => parseValues(text)).toThrow('object of JSON')
})

test('values that are no JSON are refused, and none are an empty object', () => {
  expect(() => parseValues('{broker}')).toThrow('The values are no JSON')
  expect(parseValues(' ')).toEqual({})
})
