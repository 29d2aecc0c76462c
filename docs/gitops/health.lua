-- Argo CD health of a VLLMTuning (resource.customizations.health.vllmtuning.io_VLLMTuning).
--
-- Healthy while a benchmark is under way: a sync wave must not wait for hours. Degraded only for what a person has to
-- mend. Use condition Succeeded to learn that a run has ended.

local health = { status = "Progressing", message = "waiting for the operator" }

local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= nil and obj.metadata.generation ~= nil
    and status.observedGeneration < obj.metadata.generation then
  health.message = "waiting for the operator to see the last edit"
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end

local function told(condition)
  if condition.message ~= nil and condition.message ~= "" then
    return condition.reason .. ": " .. condition.message
  end
  return condition.reason
end

local stalled, ready, progressing = conditions.Stalled, conditions.Ready, conditions.Progressing

if obj.spec ~= nil and obj.spec.suspend == true then
  return { status = "Suspended", message = "spec.suspend is true" }
end
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = told(stalled) }
end
if ready == nil then
  return health
end
if ready.status ~= "True" then
  -- not stalled: it goes on by itself, e.g. once the target's own roll-out is complete
  return { status = "Progressing", message = told(ready) }
end
if progressing ~= nil and progressing.status == "True" then
  return { status = "Healthy", message = told(progressing) }
end
if status.answer ~= nil then
  return { status = "Healthy", message = status.answer }
end
return { status = "Healthy", message = told(ready) }
