-- Facts learnt about models on their servers (store/learnt_model_facts.py).

-- name: learnt_get
SELECT facts, learnt_at FROM learnt_models WHERE server = :server AND model = :model;

-- name: learnt_put
INSERT INTO learnt_models (server, model, facts, learnt_at) VALUES (:server, :model, :facts, :now)
ON CONFLICT (server, model) DO UPDATE SET facts = :facts, learnt_at = :now;

-- name: learnt_forget_all
DELETE FROM learnt_models;

-- name: learnt_forget
DELETE FROM learnt_models WHERE server = :server AND model = :model;
