# Plays the story: `ruby main.rb pg` or `ruby main.rb active_record`, beside page.rb.
require_relative "page"

CREATED = [1001, 1002, 1003].freeze

def refused
  yield
rescue PG::RaiseException, ActiveRecord::StatementInvalid => error
  raise unless error.message.include?("refused at COMMIT")
else
  raise "order 13 was paid"
end

if ARGV == ["pg"]
  connection = PG.connect
  puts pay(connection, 42, "19.99", ENV.fetch("TRACEPARENT"))
  refused { pay(connection, 13, "19.99") }
  create(connection, CREATED)
else
  ActiveRecord::Base.establish_connection(adapter: "postgresql", min_messages: "error")
  puts pay_with_active_record(42, "19.99", ENV.fetch("TRACEPARENT"))
  refused { pay_with_active_record(13, "19.99") }
  create_with_active_record(CREATED)
end
