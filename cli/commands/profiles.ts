/** `skein profiles`. */
import type { Group } from '../shared/command.ts'
import { arg, isRecord, json, jsonObject } from '../shared/values.ts'

const PROFILES = '/{domain!}/clients/bootstrap/profiles'
const ENROLMENTS = '/{domain!}/clients/bootstrap/enrollments'

export const profiles: Group = {
  name: 'profiles',
  summary: 'templates of what devices fetch',
  description:
    'A configuration with a profile (skein bootstrap create with "profile_id") is filled in at each fetch, from the clients and channels that are bound to its slots.',
  columns: ['id', 'name', 'content_format', 'version', 'updated_at'],
  commands: [
    {
      words: 'create',
      args: '<JSON_profile>',
      tail: 'domain',
      summary: 'make a profile; JSON, or @file',
      example: `'{"name": "gateway", "content_format": "json", "content_template": "{\\"id\\": \\"{{.Device.ID}}\\"}"}'`,
      answer: 'created',
      call: {
        method: 'POST',
        service: 'bootstrap',
        path: PROFILES,
        body: (given) => jsonObject(given, 'JSON_profile'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list profiles',
      example: '--name gateway',
      call: { method: 'GET', service: 'bootstrap', path: PROFILES, query: ['limit', 'offset', 'name'] },
    },
    {
      words: 'get',
      args: '<profile_id>',
      tail: 'domain',
      summary: 'show a profile',
      example: '<profile_id>',
      call: { method: 'GET', service: 'bootstrap', path: `${PROFILES}/{profile_id}` },
    },
    {
      words: 'update',
      args: '<profile_id> <JSON_profile>',
      tail: 'domain',
      summary: 'change what is named; devices fetch the new one from then on',
      example: `<profile_id> '{"defaults": {"qos": 1}}'`,
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: `${PROFILES}/{profile_id}`,
        body: (given) => jsonObject(given, 'JSON_profile'),
      },
    },
    {
      words: 'remove',
      args: '<profile_id>',
      tail: 'domain',
      summary: 'delete a profile that no configuration uses',
      example: '<profile_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'bootstrap', path: `${PROFILES}/{profile_id}` },
    },
    {
      words: 'preview',
      args: '<profile_id> <JSON_sample>',
      tail: 'domain',
      summary: 'show what a device would be given, without secrets',
      example: `<profile_id> '{"config": {"id": "sample"}}'`,
      call: {
        method: 'POST',
        service: 'bootstrap',
        path: `${PROFILES}/{profile_id}/render-preview`,
        body: (given) => jsonObject(given, 'JSON_sample'),
      },
    },
    {
      words: 'assign',
      args: '<profile_id> <client_id>',
      tail: 'domain',
      summary: 'give the configuration of a client a profile',
      example: '<profile_id> <client_id>',
      answer: 'ok',
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: `${ENROLMENTS}/{client_id}/profile`,
        body: (given) => ({ profile_id: arg(given, 'profile_id') }),
      },
    },
    {
      words: 'bind',
      args: '<client_id> <JSON_bindings>',
      tail: 'domain',
      summary: 'fill slots of a configuration with clients and channels',
      example: `<client_id> '[{"slot": "device", "type": "client"}]'`,
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'bootstrap',
        path: `${ENROLMENTS}/{client_id}/bindings`,
        body: (given) => {
          const value = json(given, 'JSON_bindings')
          return isRecord(value) ? value : { bindings: value }
        },
      },
    },
    {
      words: 'bindings',
      args: '<client_id>',
      tail: 'domain',
      summary: 'show what the slots of a configuration are filled with',
      example: '<client_id>',
      columns: ['slot', 'type', 'resource_id', 'snapshot.name'],
      call: { method: 'GET', service: 'bootstrap', path: `${ENROLMENTS}/{client_id}/bindings` },
    },
  ],
}
