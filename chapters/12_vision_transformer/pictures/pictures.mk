# Times over batch and image size, what each component costs, which array lies where.
$(call drawing,sweeps.png,sweeps_net,$(results)/sweeps.json)
$(call drawing,component_shares.png,component_shares,$(results)/sweeps.json)
$(call drawing,memory_plan.png,memory_plan,$T/docs/sweep-net-simple-1-224.json)
